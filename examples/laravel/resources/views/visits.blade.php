@extends('base')

@section('body')
    <h1>{{ $visits === 1 ? 'Your first visit' : "Visit number $visits"
        }}{{ $name ? ", $name" : '' }}</h1>
    @foreach ($errors->all() as $error)
        <p class="error">{{ $error }}</p>
    @endforeach
    <form method="post" action="{{ url('/visits') }}">
        @csrf
        <input name="name" value="{{ old('name') }}">
        <button>Sign</button>
    </form>
@endsection
