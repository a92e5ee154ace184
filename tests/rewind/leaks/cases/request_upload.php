<?php
// A file uploaded by the previous client.
return [
    'leaks' => false,
    'why' => 'the end of a request removes what was uploaded',
    'send' => ['method' => 'POST', 'headers' => ['content-type' => 'multipart/form-data; boundary=x'], 'body' => "--x\r\nContent-Disposition: form-data; name=\"f\"; filename=\"n\"\r\n\r\nleft\r\n--x--\r\n"],
    'set' => function () { $path = $_FILES['f']['tmp_name']; if (!is_uploaded_file($path)) { throw new Exception('no file came'); } file_put_contents(LEAK_STATE . '/upload', $path); },
    'see' => function () { $path = @file_get_contents(LEAK_STATE . '/upload'); return json_encode([$_FILES, $path && is_file($path), $path && is_uploaded_file($path)]); },
];
