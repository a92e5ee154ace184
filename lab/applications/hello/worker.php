<?php

surus_serve(static function (): void {
    header('Content-Type: application/json');
    echo json_encode(['hello' => 'world']);
});
