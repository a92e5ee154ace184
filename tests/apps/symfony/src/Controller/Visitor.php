<?php

namespace App\Controller;

use App\Bundle;
use App\Form\EntryType;
use App\Service\Agent;
use App\Service\Clock;
use App\Service\Counter;
use App\Service\Dice;
use App\Service\Keeper;
use Symfony\Component\Form\FormFactoryInterface;
use Symfony\Component\HttpFoundation\JsonResponse;
use Symfony\Component\HttpFoundation\RedirectResponse;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\RequestStack;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\HttpKernel\KernelInterface;
use Symfony\Component\Routing\Generator\UrlGeneratorInterface;
use Symfony\Component\Routing\RouterInterface;
use Symfony\Component\Security\Core\Authentication\Token\Storage\TokenStorageInterface;
use Symfony\Component\Security\Http\Authentication\AuthenticationUtils;
use Symfony\Contracts\Translation\TranslatorInterface;
use Twig\Environment;

final class Visitor
{
    public function __construct(
        private RequestStack $requests,
        private TokenStorageInterface $tokens,
        private Environment $twig,
        private TranslatorInterface $translator,
        private RouterInterface $router,
        private Counter $counter,
        private Keeper $keeper,
        private FormFactoryInterface $forms,
        private AuthenticationUtils $login,
        private KernelInterface $kernel,
        private Clock $clock,
        private Dice $dice,
        private Agent $agent,
    ) {
    }

    private function user(): string
    {
        return $this->tokens->getToken()?->getUserIdentifier() ?? 'nobody';
    }

    public function who(Request $request): Response
    {
        $session = $request->getSession();
        $session->set('times', $session->get('times', 0) + 1);

        return new JsonResponse([
            'request' => [$request->query->get('q'), $this->requests->getMainRequest()->query->get('q'), $this->requests->getCurrentRequest()->query->get('q')],
            'session' => [$session->get('times'), $this->requests->getSession()->get('times')],
            'user' => $this->user(),
            'counter' => $this->counter->seen(),
            'marked' => $request->attributes->get('marked'),
            'urls' => [$this->router->generate('who', [], UrlGeneratorInterface::ABSOLUTE_URL), $this->router->getContext()->getQueryString()],
            'locale' => [$request->getLocale(), $this->translator->getLocale(), $this->translator->trans('hello'), \Locale::getDefault()],
            'process' => [date_default_timezone_get(), setlocale(\LC_TIME, '0'), mb_internal_encoding()],
            'bundle' => Bundle::$current === $this->kernel->getContainer(),
        ]);
    }

    public function page(Request $request): Response
    {
        $error = $this->login->getLastAuthenticationError();

        return new Response($this->twig->render('page.html.twig', [
            'user' => $this->user(),
            'error' => $error ? $error->getMessageKey() : 'no error',
            'last' => $this->login->getLastUsername(),
            'form' => $this->forms->create(EntryType::class)->createView(),
        ]));
    }

    public function flash(Request $request): Response
    {
        $request->getSession()->getFlashBag()->add('notice', 'flashed by '.$request->query->get('q'));

        return new RedirectResponse($this->router->generate('page'));
    }

    public function form(Request $request): Response
    {
        $form = $this->forms->create(EntryType::class)->handleRequest($request);
        if ($form->isSubmitted() && $form->isValid()) {
            $request->getSession()->getFlashBag()->add('notice', 'signed by '.$form->get('name')->getData());

            return new RedirectResponse('/page', 303);
        }

        return new Response($this->twig->render('form.html.twig', ['form' => $form->createView()]), $form->isSubmitted() ? 422 : 200);
    }

    /** Changes state that Symfony cannot reset; only restored memory loses it. */
    public function change(Request $request): Response
    {
        $this->twig->addGlobal('brand', 'of '.$this->user());
        $this->router->getContext()->setHost('changed.example')->setScheme('https');
        $this->translator->setLocale('de');
        date_default_timezone_set('Asia/Tokyo');
        setlocale(\LC_TIME, 'C.UTF-8');
        mb_internal_encoding('ISO-8859-1');

        return new JsonResponse('changed');
    }

    public function keeps(Request $request): Response
    {
        return new JsonResponse($this->keeper->first($request));
    }

    public function json(Request $request): Response
    {
        return new JsonResponse([$request->query->get('q'), $request->hasPreviousSession()]);
    }

    /** What services have found when they were constructed. */
    public function born(): Response
    {
        return new JsonResponse([$this->agent->name, $this->dice->cast, $this->clock->at - $_SERVER['REQUEST_TIME']]);
    }

    public function guarded(): Response
    {
        return new Response($this->user());
    }

    public function dies(Request $request): never
    {
        $this->counter->seen();
        $this->user();
        echo 'before';
        exit;
    }

    public function throws(): never
    {
        throw new \RuntimeException('thrown');
    }
}
