@extends('base')

@section('body')
    <p>{{ auth()->user()->name ?? 'guest' }}, {{ __('messages.hello') }}</p>
    @foreach ($notes as $note)
        <article>
            <h2><a href="{{ url('/bound', $note->id) }}">Note {{ $loop->iteration }}</a></h2>
            <p>{{ $note->text }} ({{ $note->owner }})</p>
        </article>
    @endforeach
    <a href="{{ $notes->nextPageUrl() }}">{{ $notes->total() }} notes</a>
@endsection
