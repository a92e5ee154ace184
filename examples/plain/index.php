<?php

declare(strict_types=1);

require_once __DIR__.'/functions.php';

$path = rawurldecode(parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH) ?: '/');
$server = [
    'Server' => ($_SERVER['SERVER_SOFTWARE'] ?? '') ?: 'unknown',
    'Engine' => ($_SERVER['SURUS_ENGINE'] ?? '') ?: PHP_SAPI,
    'PHP' => PHP_VERSION,
    'OPcache' => function_exists('opcache_get_status') && opcache_get_status(false) ? 'on' : 'off',
    'Process' => (string) getmypid(),
];

if ($path === '/api/hello') {
    header('Content-Type: application/json');
    echo json_encode(
        [
            'hello' => 'world',
            'method' => $_SERVER['REQUEST_METHOD']
        ] + array_change_key_case($server),
        JSON_UNESCAPED_SLASHES
    ), "\n";

    return;
}

session_start(['cookie_httponly' => true, 'cookie_samesite' => 'Lax']);

if ($_SERVER['REQUEST_METHOD'] === 'POST' && isset($_POST['forget'])) {
    $_SESSION = [];
    session_destroy();
    header('Location: /', true, 303);

    return;
}

$sent = $_SERVER['REQUEST_METHOD'] === 'POST' ? receive($_POST, $_FILES['file'] ?? null) : null;
$visits = $_SESSION['visits'] = max(1, ($_SESSION['visits'] ?? 0) + ($sent ? 0 : 1));
$found = $path === '/' || $path === '/index.php';
http_response_code($found ? 200 : 404);

?>
<!doctype html>
<html lang="en">
<head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <title>Surus carries PHP</title>
    <link rel="icon" href="/elephant.svg" type="image/svg+xml">
    <link rel="stylesheet" href="/style.css">
</head>
<body>
<header>
    <div class="words">
<?php if ($found) { ?>
        <h1>Surus</h1>
        <p>The elephant that carried Hannibal.<br>This one carries PHP.</p>
<?php } else { ?>
        <h1>Off the path</h1>
        <p>There is no <code><?= h($path) ?></code> here. <a href="/">Back to the road</a></p>
<?php } ?>
    </div>
    <div class="scene"><img src="/elephant.svg" alt="An elephant before snowy mountains" width="640" height="340"></div>
</header>
<main>
    <section class="lead">
        <p>Surus is one program that serves PHP applications. It takes requests in, keeps PHP alive between them in
            processes of its own, and gives every request a fresh start: what one leaves behind, no other sees.</p>
    </section>

    <section>
        <h2>The server that answered</h2>
        <dl>
<?php foreach ($server as $name => $value) { ?>
            <div><dt><?= h($name) ?></dt><dd><?= h($value) ?></dd></div>
<?php } ?>
            <div><dt>Time in PHP</dt><dd><?= number_format((microtime(true) - $_SERVER['REQUEST_TIME_FLOAT']) * 1000, 2) ?> ms</dd></div>
        </dl>
    </section>

    <section id="send">
        <h2>Send it something</h2>
        <form method="post" action="/#send" enctype="multipart/form-data">
            <label for="name">Your name</label>
            <input id="name" name="name" maxlength="60" autocomplete="given-name" value="<?= h($sent['name'] ?? '') ?>">
            <label for="file">A file, such as a picture</label>
            <input id="file" name="file" type="file">
            <button name="send" value="1">Send</button>
        </form>
<?php if ($sent) { ?>
        <div class="answer">
            <p><strong>Hello<?= $sent['name'] === '' ? '' : ', '.h($sent['name']) ?>!</strong>
<?php if ($file = $sent['file']) { ?>
                <span class="file"><?= h($file['name']) ?></span> arrived: <?= number_format($file['size']) ?> bytes of <?= h($file['type']) ?>.</p>
            <p class="sum">SHA-256 <code><?= $file['sha256'] ?></code></p>
<?php if ($file['picture']) { ?>
            <img class="sent" src="<?= $file['picture'] ?>" alt="What you sent">
<?php } ?>
<?php } else { ?>
                <?= h($sent['problem'] ?? 'No file came with it.') ?></p>
<?php } ?>
        </div>
<?php } ?>
    </section>

    <section>
        <h2>It remembers</h2>
        <form method="post" action="/" class="line">
            <p>You have been here <strong class="visits"><?= $visits === 1 ? 'once' : "$visits times" ?></strong>.</p>
            <button class="quiet" name="forget" value="1">Forget me</button>
        </form>
    </section>

    <section>
        <h2>It speaks JSON</h2>
        <div class="line">
            <p><a href="/api/hello">/api/hello</a></p>
            <button class="quiet" id="ask">Ask</button>
        </div>
        <pre id="json" hidden></pre>
    </section>
</main>
<script>
    document.getElementById('ask').onclick = async () => {
        const shown = document.getElementById('json');
        shown.textContent = JSON.stringify(await (await fetch('/api/hello')).json(), null, 2);
        shown.hidden = false;
    };
</script>
</body>
</html>
