<?php

namespace App\Entity;

use Doctrine\ORM\Mapping as ORM;

#[ORM\Entity]
#[ORM\Table('reports')]
class Report
{
    #[ORM\Id]
    #[ORM\Column]
    #[ORM\GeneratedValue]
    private ?int $id = null;

    #[ORM\Column(length: 80)]
    private ?string $text = null;

    #[ORM\ManyToOne(inversedBy: 'reports')]
    private ?Person $sender;

    public function __construct(?Person $sender = null)
    {
        $this->sender = $sender;
    }

    public function getId(): ?int
    {
        return $this->id;
    }

    public function getText(): ?string
    {
        return $this->text;
    }

    public function setText(?string $text): void
    {
        $this->text = $text;
    }

    public function getSender(): ?Person
    {
        return $this->sender;
    }

    public function setSender(?Person $sender): void
    {
        $this->sender = $sender;
    }
}
