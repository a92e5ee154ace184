<?php

namespace App\Controller;

use Symfony\Component\HttpFoundation\BinaryFileResponse;
use Symfony\Component\HttpFoundation\Cookie;
use Symfony\Component\HttpFoundation\JsonResponse;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\HttpFoundation\StreamedResponse;
use Symfony\Component\HttpKernel\Exception\AccessDeniedHttpException;
use Symfony\Component\HttpKernel\HttpKernelInterface;
use Symfony\Contracts\Cache\CacheInterface;
use Symfony\Contracts\Translation\TranslatorInterface;

/** What clients send besides forms, and what they get besides pages. */
final class Traffic
{
    public function __construct(
        private TranslatorInterface $translator,
        private HttpKernelInterface $kernel,
        private CacheInterface $cache,
    ) {
    }

    public function upload(Request $request): Response
    {
        $file = $request->files->get('file');
        $sum = sha1_file($file->getPathname());
        $moved = $file->move(sys_get_temp_dir(), 'upload-'.bin2hex(random_bytes(8)));
        $size = $moved->getSize();
        unlink($moved->getPathname());

        return new JsonResponse([$file->getClientOriginalName(), $size, $sum, $request->request->get('note')]);
    }

    public function cookie(Request $request): Response
    {
        $seen = (string) $request->cookies->get('seen');
        $response = new JsonResponse([$seen, array_keys($_COOKIE)]);
        $response->headers->setCookie(Cookie::create('seen', $seen.$request->query->get('q').',')->withHttpOnly(false));

        return $response;
    }

    public function cart(Request $request): Response
    {
        $session = $request->getSession();
        if (null !== $item = $request->query->get('add')) {
            $session->set('cart', [...$session->get('cart', []), $item]);
        }

        return new JsonResponse([$session->get('cart'), $session->isStarted(), \count($session->all())]);
    }

    public function stream(Request $request): Response
    {
        $q = $request->query->get('q');

        return new StreamedResponse(static function () use ($q): void {
            foreach (range(1, 3) as $part) {
                echo "part $part for $q\n";
                flush();
            }
        }, 200, ['Content-Type' => 'text/plain']);
    }

    public function file(): Response
    {
        return new BinaryFileResponse(__FILE__, 200, ['Content-Type' => 'text/x-php'], true, 'attachment');
    }

    public function version(Request $request): Response
    {
        $response = (new Response('version 1'))->setEtag('one');
        $response->isNotModified($request);

        return $response;
    }

    public function body(Request $request): Response
    {
        return new JsonResponse([$request->getMethod(), $request->toArray(), $request->headers->get('x-caller')]);
    }

    public function inner(Request $request): Response
    {
        $inner = Request::create('/json?q=in-'.$request->query->get('q'));
        $response = $this->kernel->handle($inner, HttpKernelInterface::SUB_REQUEST);

        return new JsonResponse([$response->getContent(), $request->query->get('q')]);
    }

    public function greeting(Request $request): Response
    {
        $language = $request->getPreferredLanguage(['en', 'de']);

        return new JsonResponse([$language, $this->translator->trans('hello', [], null, $language), $request->getLanguages()]);
    }

    public function denied(Request $request): never
    {
        throw new AccessDeniedHttpException($request->query->get('q'));
    }

    public function cached(): Response
    {
        return new JsonResponse($this->cache->get('answer', static fn () => 6 * 7));
    }
}
