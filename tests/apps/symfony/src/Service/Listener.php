<?php

namespace App\Service;

use Symfony\Component\EventDispatcher\EventSubscriberInterface;
use Symfony\Component\HttpFoundation\RequestStack;
use Symfony\Component\HttpKernel\Event\RequestEvent;

/** Created during a request, and reads it in its constructor. */
final class Listener implements EventSubscriberInterface
{
    public readonly string $madeBy;

    public function __construct(private RequestStack $requests)
    {
        $this->madeBy = $requests->getCurrentRequest() ? 'a request' : 'nobody';
    }

    public static function getSubscribedEvents(): array
    {
        return ['kernel.request' => 'mark'];
    }

    public function mark(RequestEvent $event): void
    {
        $event->getRequest()->attributes->set('marked', $this->requests->getCurrentRequest()->query->get('q').' made by '.$this->madeBy);
    }
}
