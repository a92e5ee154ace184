<?php

/* Mail that is kept, a form with a file, and an answer in parts. */

// Comments follow each other faster than WordPress permits.
add_filter('wp_is_comment_flood', '__return_false', 99);

add_action('phpmailer_init', static function ($mailer): void {
    $mailer->isSendmail();
    $mailer->Sendmail = ABSPATH.'bin/sendmail';
});

add_action('parse_request', static function (): void {
    switch ($_GET['flow'] ?? '') {
        case 'mail':
            header('Content-Type: text/plain');
            $mail = file_get_contents(ABSPATH.'bin/outbox');
            echo str_contains($mail, 'To: '.wp_unslash($_GET['to'])) ? $mail : 'no mail';
            exit;
        case 'file':
            require_once ABSPATH.'wp-admin/includes/file.php';
            $file = wp_handle_upload($_FILES['file'], ['test_form' => false]);
            $sum = sha1_file($file['file']);
            unlink($file['file']);
            wp_send_json([basename($file['url']), $file['type'], $sum, wp_unslash($_POST['note'])]);
        case 'parts':
            header('Content-Type: text/plain');
            foreach (range(1, 3) as $part) {
                echo "part $part for ", wp_unslash($_GET['q']), "\n";
                flush();
            }
            exit;
    }
});
