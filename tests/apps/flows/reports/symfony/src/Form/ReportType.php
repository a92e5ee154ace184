<?php

namespace App\Form;

use App\Entity\Report;
use Symfony\Component\Form\AbstractType;
use Symfony\Component\Form\Extension\Core\Type\TextareaType;
use Symfony\Component\Form\FormBuilderInterface;
use Symfony\Component\OptionsResolver\OptionsResolver;
use Symfony\Component\Validator\Constraints\Length;
use Symfony\Component\Validator\Constraints\NotBlank;

final class ReportType extends AbstractType
{
    public static function constraints(): array
    {
        return [new NotBlank(), new Length(min: 3, max: 80)];
    }

    public function buildForm(FormBuilderInterface $builder, array $options): void
    {
        $builder->add('text', TextareaType::class, ['label' => 'text', 'required' => false, 'constraints' => self::constraints()]);
    }

    public function getBlockPrefix(): string
    {
        return '';
    }

    public function configureOptions(OptionsResolver $resolver): void
    {
        $resolver->setDefaults([
            'data_class' => Report::class,
            'translation_domain' => 'reports',
            'csrf_token_id' => 'authenticate',
            'csrf_field_name' => '_token',
            'allow_extra_fields' => true,
        ]);
    }
}
