<h1>{{ trans_choice('reports.title', count($reports)) }}</h1>
<x-reports :reports="$reports" />
