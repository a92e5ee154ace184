<?php

namespace App\Controller;

use App\Form\EntryType;
use Symfony\Bundle\FrameworkBundle\Controller\AbstractController;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;

final class Guestbook extends AbstractController
{
    public function page(Request $request): Response
    {
        $session = $request->getSession();
        $form = $this->createForm(EntryType::class);
        $form->handleRequest($request);
        if ($form->isSubmitted() && $form->isValid()) {
            $session->set('entries', [$form->getData(), ...$session->get('entries', [])]);
            $this->addFlash('notice', 'Thank you, '.$form->get('name')->getData().'.');

            return $this->redirectToRoute('guestbook', [], Response::HTTP_SEE_OTHER);
        }

        return $this->render(
            'guestbook.html.twig',
            ['form' => $form->createView(), 'entries' => $session->get('entries', [])],
            new Response(
                null,
                $form->isSubmitted() ? Response::HTTP_UNPROCESSABLE_ENTITY : Response::HTTP_OK
            ),
        );
    }
}
