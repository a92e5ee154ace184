<title>{{ $brand }} {{ $tenant ?? 'no tenant' }} {{ $composed }} {{ $app->getLocale() }}</title>
<p id="user">{{ auth()->user()->name ?? 'guest' }}, {{ session('name', 'no name') }}</p>
<p id="status">{{ session('status', 'no status') }}</p>
<ul>@foreach ($errors->all() as $error)<li>{{ $error }}</li>@endforeach</ul>
<form method="post" action="{{ url('/login') }}">@csrf<input name="name" value="{{ old('name', 'nothing old') }}"></form>
