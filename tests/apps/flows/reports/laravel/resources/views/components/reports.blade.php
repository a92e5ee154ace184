@props(['reports'])
<ul {{ $attributes->merge(['class' => 'reports']) }}>@forelse ($reports as $report)<li>{{ $report->text }} <b>{{ $report->sender->name }}</b></li>@empty<li>–</li>@endforelse</ul>
