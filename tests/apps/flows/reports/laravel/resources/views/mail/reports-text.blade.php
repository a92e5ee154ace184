@foreach ($reports as $report){{ $report->sender->name }}: {!! $report->text !!}
@endforeach
