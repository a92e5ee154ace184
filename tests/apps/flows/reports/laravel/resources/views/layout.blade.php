<!DOCTYPE html>
<html lang="{{ app()->getLocale() }}">
<title>@yield('title', $brand)</title>
<nav>@foreach (['page', 'reports', 'archive'] as $name)<a href="{{ route($name) }}">{{ ucfirst($name) }}</a>@endforeach</nav>
@includeWhen(session('status'), 'status')
@yield('body')
@stack('scripts')
