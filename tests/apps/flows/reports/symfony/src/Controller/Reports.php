<?php

namespace App\Controller;

use App\Entity\Report;
use App\Entity\Person;
use App\Form\ReportType;
use Doctrine\ORM\EntityManagerInterface;
use Symfony\Bridge\Twig\Mime\TemplatedEmail;
use Symfony\Bundle\FrameworkBundle\Controller\AbstractController;
use Symfony\Component\HttpFoundation\JsonResponse;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\HttpKernel\Exception\BadRequestHttpException;
use Symfony\Component\Mailer\MailerInterface;
use Symfony\Component\Serializer\Exception\NotEncodableValueException;
use Symfony\Component\Serializer\SerializerInterface;
use Symfony\Component\Validator\Validator\ValidatorInterface;
use Symfony\Contracts\Cache\CacheInterface;
use Symfony\Contracts\Translation\TranslatorInterface;

/** Reports in a database: pages with a form, data for programs, and mail. */
final class Reports extends AbstractController
{
    private const SHOWN = ['attributes' => ['text', 'sender' => ['name']]];

    public function __construct(
        private EntityManagerInterface $entities,
        private TranslatorInterface $translator,
        private SerializerInterface $serializer,
    ) {
    }

    private function person(?string $name): ?Person
    {
        return $this->entities->getRepository(Person::class)->findOneBy(['name' => $name]);
    }

    private function user(): Person
    {
        $this->denyAccessUnlessGranted('ROLE_USER');

        return $this->person($this->getUser()->getUserIdentifier());
    }

    public function reports(Request $request): Response
    {
        $user = $this->user();
        $report = new Report($user);
        $form = $this->createForm(ReportType::class, $report)->handleRequest($request);
        if ($form->isSubmitted() && $form->isValid()) {
            $this->entities->persist($report);
            $this->entities->flush();
            $this->addFlash('notice', $this->translator->trans('written', ['text' => $report->getText()], 'reports'));

            return $this->redirectToRoute('reports', [], 303);
        }
        $response = new Response('', $form->isSubmitted() ? 422 : 200);

        return $this->render('reports.html.twig', ['form' => $form->createView(), 'reports' => $user->getReports()], $response);
    }

    /** Answers with the mail as the transport has got it. */
    public function send(MailerInterface $mailer): Response
    {
        $user = $this->user();
        $mailer->send((new TemplatedEmail())
            ->from('reports@example.org')
            ->to($user->getName().'@example.org')
            ->subject($this->translator->trans('title', ['count' => \count($user->getReports())], 'reports'))
            ->htmlTemplate('mail.html.twig')
            ->context(['reports' => $user->getReports()]));

        $outbox = file_get_contents($this->getParameter('kernel.project_dir').'/bin/outbox');

        return new Response($outbox, 200, ['Content-Type' => 'text/plain']);
    }

    public function burn(): Response
    {
        $query = $this->entities->createQuery('DELETE FROM '.Report::class.' l WHERE l.sender = :sender');
        $this->addFlash('notice', $query->execute(['sender' => $this->user()]).' reports');

        return $this->redirectToRoute('reports', [], 303);
    }

    public function write(Request $request, ValidatorInterface $validator): Response
    {
        try {
            $report = $this->serializer->deserialize($request->getContent(), Report::class, 'json', ['attributes' => ['text']]);
        } catch (NotEncodableValueException $e) {
            throw new BadRequestHttpException('no JSON', $e);
        }
        $report->setSender($this->person($request->query->get('sender')));
        $wrong = $validator->validate($report->getText(), ReportType::constraints());
        if (\count($wrong) || !$report->getSender()) {
            return JsonResponse::fromJsonString($this->serializer->serialize($wrong, 'json'), 422);
        }
        $this->entities->persist($report);
        $this->entities->flush();

        return JsonResponse::fromJsonString($this->serializer->serialize($report, 'json', self::SHOWN), 201);
    }

    public function read(Request $request): Response
    {
        $query = $this->entities->createQuery('SELECT l FROM '.Report::class.' l JOIN l.sender s WHERE s.name = :name ORDER BY l.id');
        $reports = $query->execute(['name' => $request->query->get('sender')]);
        $format = $request->query->get('format', 'json');

        return new Response($this->serializer->serialize($reports, $format, self::SHOWN), 200, ['Content-Type' => "text/$format"]);
    }

    public function archive(CacheInterface $cache): Response
    {
        return $this->render('archive.html.twig', [
            'reports' => $this->person('hannibal')->getReports(),
            'length' => $cache->get('reports.length', fn () => $this->length('hannibal')),
        ]);
    }

    private function length(string $name): int
    {
        $query = $this->entities->createQuery('SELECT SUM(LENGTH(l.text)) FROM '.Report::class.' l JOIN l.sender s WHERE s.name = :name');

        return (int) $query->setParameter('name', $name)->getSingleScalarResult();
    }
}
