<?php

namespace Surus\Cli {

    /** Uploaded files; deletes those that the script did not move. */
    final class Uploads
    {
        /** The value of $_FILES. */
        public static array $files = [];
        /** The form field MAX_FILE_SIZE. */
        public static int $formLimit = 0;
        private static array $paths = [];
        private static ?int $left = null;

        /** Stores a part as a file unless the limit is reached. */
        public static function take(
            Parts $parts,
            string $field,
            string $filename,
            string $type
        ): void
        {
            self::$left ??= \ini_get('file_uploads') ? (int) Settings::get('max_file_uploads') : -1;
            if (self::$left <= 0) {
                if (self::$left-- === 0) {
                    warn('Maximum number of allowable file uploads has been exceeded');
                }
                return;
            }
            // Like PHP, reject this and all later files if brackets do not match.
            if (!\preg_match('/^([^[\]]+)((?:\[[^[\]]*\])*)$/D', $field, $name)) {
                self::$left = -1;
                return;
            }
            [$path, $size, $error] = ['', 0, \UPLOAD_ERR_NO_FILE];
            if ($filename !== '') {
                self::$left--;
                [$path, $size, $error] = self::store($parts);
            }
            $described = [
                'name' => \substr(\strrchr('/' . \strtr($filename, '\\', '/'), '/'), 1),
                'full_path' => $filename,
                'type' => $error ? '' : \strstr("$type;", ';', true),
                'tmp_name' => $path,
                'error' => $error,
                'size' => $size,
            ];
            [$base] = \array_keys(Fields::query(\rawurlencode($name[1])));
            \preg_match_all('/\[([^\]]*)/', $name[2], $path);
            foreach ($described as $key => $value) {
                self::put($value, [$base, $key, ...$path[1]]);
            }
        }

        /** `a[]` appends to the array, as in other fields. */
        private static function put(string|int $value, array $path): void
        {
            $place = &self::$files;
            foreach ($path as $key) {
                $place = \is_array($place) ? $place : [];
                if ($key === '') {
                    $place = &$place[];
                } else {
                    $place = &$place[$key];
                }
            }
            $place = $value;
        }

        private static function store(Parts $parts): array
        {
            $limit = Settings::size('upload_max_filesize');
            // Falls back to the system's directory, with a notice.
            $path = @\tempnam(\ini_get('upload_tmp_dir') ?: \sys_get_temp_dir(), 'php');
            if ($path === false || !($file = \fopen($path, 'w'))) {
                warn('File upload error - unable to create a temporary file');
                return ['', 0, \UPLOAD_ERR_NO_TMP_DIR];
            }
            self::$paths[$path] = true;
            [$size, $error] = [0, \UPLOAD_ERR_OK];
            foreach ($parts->content() as $piece) {
                $size += \strlen($piece);
                $error = match (true) {
                    $limit > 0 && $size > $limit => \UPLOAD_ERR_INI_SIZE,
                    self::$formLimit > 0 && $size > self::$formLimit => \UPLOAD_ERR_FORM_SIZE,
                    @\fwrite($file, $piece) !== \strlen($piece) => \UPLOAD_ERR_CANT_WRITE,
                    default => \UPLOAD_ERR_OK,
                };
                if ($error) {
                    break;
                }
            }
            \fclose($file);
            $error = $error ?: ($parts->ended() ? \UPLOAD_ERR_PARTIAL : \UPLOAD_ERR_OK);
            if ($error) {
                \unlink($path);
                unset(self::$paths[$path]);
                return ['', 0, $error];
            }
            return [$path, $size, $error];
        }

        public static function has(string $path): bool
        {
            return isset(self::$paths[$path]);
        }

        public static function move(string $from, string $to): bool
        {
            if (!self::has($from)) {
                return false;
            }
            if (@\rename($from, $to)) {
                // The temporary file has mode 0600.
                @\chmod($to, 0666 & ~\umask());
            } elseif (\copy($from, $to)) {
                \unlink($from);
            } else {
                return warn("move_uploaded_file(): Unable to move \"$from\" to \"$to\"");
            }
            unset(self::$paths[$from]);
            return true;
        }

        public static function remove(): void
        {
            foreach (self::$paths as $path => $_) {
                @\unlink($path);
            }
        }
    }
}
