<?php

namespace App\Mail;

use Illuminate\Mail\Mailable;
use Illuminate\Support\Collection;

final class Reports extends Mailable
{
    public function __construct(public Collection $reports)
    {
    }

    public function build(): self
    {
        $title = trans_choice('reports.title', $this->reports->count());

        return $this->subject($title)->view('mail.reports')->text('mail.reports-text');
    }
}
