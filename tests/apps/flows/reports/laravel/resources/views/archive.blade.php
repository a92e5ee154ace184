@extends('layout')
@section('title', trans_choice('reports.title', count($reports)))
@section('body')
<x-reports :reports="$reports" />
<p>{{ __('reports.length', ['length' => $length]) }}</p>
@endsection
