<?php

namespace App\Models;

use Illuminate\Foundation\Auth\User as Authenticatable;

final class User extends Authenticatable
{
    public $timestamps = false;
    protected $guarded = [];
    protected $rememberTokenName = '';
}
