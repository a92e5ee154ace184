<?php

namespace App\Controller;

use Symfony\Bundle\FrameworkBundle\Controller\AbstractController;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\HttpKernel\Kernel;

final class Pages extends AbstractController
{
    public function home(Request $request): Response
    {
        return $this->render('home.html.twig', [
            'symfony' => Kernel::VERSION,
            'php' => \PHP_VERSION,
            'server' => $request->server->get('SERVER_SOFTWARE') ?: \PHP_SAPI,
        ]);
    }

    public function hello(string $name): Response
    {
        return $this->render('hello.html.twig', ['name' => $name]);
    }

    public function visits(Request $request): Response
    {
        $session = $request->getSession();
        $session->set('visits', $visits = $session->get('visits', 0) + 1);

        return $this->render('visits.html.twig', ['visits' => $visits]);
    }
}
