<?php

namespace App\Models;

use Illuminate\Database\Eloquent\Builder;
use Illuminate\Database\Eloquent\Model;
use Illuminate\Support\Facades\Auth;

/** A scope for the user at the time the model is booted, as in multi-tenant applications. */
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
