<?php

namespace App\Models;

use Illuminate\Database\Eloquent\Builder;
use Illuminate\Database\Eloquent\Model;
use Illuminate\Database\Eloquent\Relations\BelongsTo;

final class Report extends Model
{
    public $timestamps = false;
    protected $fillable = ['sender_id', 'text'];

    public function sender(): BelongsTo
    {
        return $this->belongsTo(User::class, 'sender_id');
    }

    public function scopeOf(Builder $query, ?string $name): Builder
    {
        return $query->with('sender')->whereHas('sender', static fn ($sender) => $sender->where('name', $name))->orderBy('id');
    }
}
