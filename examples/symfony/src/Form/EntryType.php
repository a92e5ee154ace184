<?php

namespace App\Form;

use Symfony\Component\Form\AbstractType;
use Symfony\Component\Form\Extension\Core\Type\SubmitType;
use Symfony\Component\Form\Extension\Core\Type\TextareaType;
use Symfony\Component\Form\Extension\Core\Type\TextType;
use Symfony\Component\Form\FormBuilderInterface;
use Symfony\Component\Form\FormError;
use Symfony\Component\Form\FormEvent;
use Symfony\Component\Form\FormEvents;

final class EntryType extends AbstractType
{
    public function buildForm(FormBuilderInterface $builder, array $options): void
    {
        $builder
            ->add('name', TextType::class, ['attr' => ['maxlength' => 40]])
            ->add('message', TextareaType::class, ['attr' => ['rows' => 3]])
            ->add('send', SubmitType::class, ['label' => 'Sign the book'])
            // By hand, because the validator is a component more than this example needs.
            ->addEventListener(FormEvents::POST_SUBMIT, static function (FormEvent $event): void {
                $form = $event->getForm();
                $length = mb_strlen($form->get('name')->getData() ?? '');
                if ($length < 2 || $length > 40) {
                    $form->get('name')->addError(new FormError('A name has 2 to 40 letters.'));
                }
                if (null === $form->get('message')->getData()) {
                    $form->get('message')->addError(new FormError('Say something.'));
                }
            });
    }
}
