<?php

namespace App\Http\Resources;

use Illuminate\Http\Resources\Json\JsonResource;

final class ReportResource extends JsonResource
{
    public function toArray($request): array
    {
        return ['text' => $this->text, 'sender' => ['name' => $this->sender->name]];
    }
}
