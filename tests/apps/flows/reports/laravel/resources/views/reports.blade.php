@extends('layout')
@section('title')
{{ trans_choice('reports.title', count($reports)) }} – {{ $brand }}
@endsection
@section('body')
<x-reports :reports="$reports" class="own" />
<form method="post">@csrf<textarea name="text">{{ old('text') }}</textarea>@error('text')<p class="error">{{ $message }}</p>@enderror</form>
@endsection
@push('scripts')
<script>reports = @js($reports->pluck("text"))</script>
@endpush
