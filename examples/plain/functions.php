<?php

declare(strict_types=1);

/** Looks at what came with the form, and keeps nothing. */
function receive(array $fields, ?array $file): array
{
    $sent = ['name' => trim((string) ($fields['name'] ?? '')), 'file' => null, 'problem' => null];
    $error = $file['error'] ?? UPLOAD_ERR_NO_FILE;
    if ($error === UPLOAD_ERR_OK && is_uploaded_file($file['tmp_name'])) {
        $type = (new finfo(FILEINFO_MIME_TYPE))->file($file['tmp_name']);
        $shown = in_array($type, ['image/png', 'image/jpeg', 'image/gif', 'image/webp'], true);
        $sent['file'] = [
            'name' => $file['name'],
            'size' => $file['size'],
            'type' => $type,
            'sha256' => hash_file('sha256', $file['tmp_name']),
            'picture' => $shown
                ? "data:$type;base64,".base64_encode(file_get_contents($file['tmp_name']))
                : null,
        ];
    } elseif ($error === UPLOAD_ERR_INI_SIZE) {
        $sent['problem'] = 'That file is larger than PHP accepts here: '
            .ini_get('upload_max_filesize')
            .'.';
    } elseif ($error !== UPLOAD_ERR_NO_FILE) {
        $sent['problem'] = "The upload failed with PHP's error $error.";
    }

    return $sent;
}

function h(string $text): string
{
    return htmlspecialchars($text, ENT_QUOTES | ENT_SUBSTITUTE);
}
