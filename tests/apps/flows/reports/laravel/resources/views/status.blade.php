<p class="notice">{{ session('status') }}</p>
