@extends('base')

@section('body')
    <h1>Hello, {{ $name }}!</h1>
@endsection
