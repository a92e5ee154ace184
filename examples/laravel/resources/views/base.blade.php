<!doctype html>
<html lang="en">
<head>
    <meta charset="utf-8">
    <title>Surus runs Laravel</title>
    <link rel="icon" href="data:,">
</head>
<body>
    <nav>
        <a href="{{ url('/hello/Hannibal') }}">Hello</a>
        <a href="{{ url('/visits') }}">Visits</a>
    </nav>
    @yield('body')
</body>
</html>
