<?php

namespace App\Controller;

use Symfony\Component\HttpFoundation\Response;
use Twig\Environment;

final class Posts
{
    public function __construct(private Environment $twig)
    {
    }

    public function list(): Response
    {
        $posts = [];
        for ($day = 1; $day <= 20; ++$day) {
            $posts[] = [
                'title' => "Day $day in the Alps",
                'at' => new \DateTimeImmutable("2024-10-$day 12:00"),
                'text' => 'Snow, and elephants that <em>do not</em> like it.',
            ];
        }

        return new Response($this->twig->render('list.html.twig', ['posts' => $posts]));
    }
}
