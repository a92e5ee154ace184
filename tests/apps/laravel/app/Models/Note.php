<?php

namespace App\Models;

use Illuminate\Database\Eloquent\Builder;
use Illuminate\Database\Eloquent\Model;
use Illuminate\Support\Facades\Auth;

/** Scoped by who is there when the model is booted, as applications for several tenants do. */
final class Note extends Model
{
    public $timestamps = false;
    protected $guarded = [];

    protected static function booted(): void
    {
        if ($user = Auth::user()) {
            static::addGlobalScope('owner', static fn (Builder $query) => $query->where('owner', $user->name));
        }
        static::retrieved(static function (self $note): void {
            $note->seen = 'yes';
        });
    }
}
