<?php
// Draws from every source of random numbers in a request, on every engine.

/** Creates the boot's state: engines without an explicit seed. */
function random_boot(): array
{
    $libraries = [];
    foreach (random_libraries() as $library => [$function]) {
        try {
            $libraries[$library] = FFI::cdef($function, $library);
        } catch (FFI\Exception) {
            // The library is not installed.
        }
    }
    return $libraries + [
        'Mt19937' => new Random\Engine\Mt19937,
        'PcgOneseq128XslRr64' => new Random\Engine\PcgOneseq128XslRr64,
        'Xoshiro256StarStar' => new Random\Engine\Xoshiro256StarStar,
        'Secure' => new Random\Engine\Secure,
        'randomizer' => new Random\Randomizer,
        'sqlite' => extension_loaded('sqlite3') ? new SQLite3(':memory:') : null,
        'gmp' => extension_loaded('gmp'),
        'curl' => extension_loaded('curl') ? curl_init() : null,
        'ec' => extension_loaded('openssl') ? openssl_pkey_new(['private_key_type' => OPENSSL_KEYTYPE_EC, 'curve_name' => 'prime256v1']) : null,
    ];
}

/**
 * Libraries that extensions use: the declaration of the function that draws, and a call of it. The boot loads
 * them, because a process that loads one in a request is not rewound.
 */
function random_libraries(): array
{
    return [
        'libgnutls.so.30' => ['int gnutls_rnd(int level, void *data, size_t length);', fn ($ffi, $data) => $ffi->gnutls_rnd(0, $data, 16)],
        'libgcrypt.so.20' => ['void gcry_create_nonce(void *data, size_t length);', fn ($ffi, $data) => $ffi->gcry_create_nonce($data, 16)],
    ];
}

/** Draws at least 64 bits from each source, so that two equal values cannot be chance. */
function random_draw(array $boot): array
{
    $many = fn (callable $draw, int $times) => implode(',', array_map(fn () => $draw(), range(1, $times)));
    $bytes = fn (Random\Engine $engine) => bin2hex((new Random\Randomizer($engine))->getBytes(16));
    $letters = implode(range('a', 'z')) . implode(range('A', 'Z'));
    $list = range(1, 40);
    shuffle($list);
    $draws = [
        'mt_rand' => $many(mt_rand(...), 4),
        'mt_rand in a range' => $many(fn () => mt_rand(0, 999_999), 5),
        'rand' => $many(rand(...), 4),
        // Without its time part.
        'uniqid' => $many(fn () => substr(uniqid('', true), 13), 3),
        'random_int' => $many(fn () => random_int(0, PHP_INT_MAX), 2),
        'random_bytes' => bin2hex(random_bytes(16)),
        'shuffle' => implode(',', $list),
        'str_shuffle' => str_shuffle($letters),
        'array_rand' => implode(',', array_rand(range(0, 9999), 12)),
        'Randomizer' => bin2hex((new Random\Randomizer)->getBytes(16)),
        'Mt19937' => $bytes(new Random\Engine\Mt19937),
        'PcgOneseq128XslRr64' => $bytes(new Random\Engine\PcgOneseq128XslRr64),
        'Xoshiro256StarStar' => $bytes(new Random\Engine\Xoshiro256StarStar),
        'Secure' => $bytes(new Random\Engine\Secure),
        'Mt19937 of boot' => $bytes($boot['Mt19937']),
        'PcgOneseq128XslRr64 of boot' => $bytes($boot['PcgOneseq128XslRr64']),
        'Xoshiro256StarStar of boot' => $bytes($boot['Xoshiro256StarStar']),
        'Secure of boot' => $bytes($boot['Secure']),
        'Randomizer of boot' => bin2hex($boot['randomizer']->getBytes(16)),
        'password_hash' => substr(password_hash('x', PASSWORD_BCRYPT, ['cost' => 4]), 7, 22),
        'tempnam' => $many(random_name(...), 3),
    ];
    if (defined('PASSWORD_ARGON2ID')) {
        $draws['password_hash with Argon2'] = explode('$', password_hash('x', PASSWORD_ARGON2ID, ['memory_cost' => 64, 'time_cost' => 1]))[4];
    }
    if (extension_loaded('session')) {
        $draws['session_create_id'] = session_create_id();
        session_save_path(dirname(__DIR__) . '/state');
        session_start(['use_cookies' => 0]);
        $draws['session_start'] = session_id();
        session_destroy();
    }
    if (extension_loaded('openssl')) {
        $draws['openssl_random_pseudo_bytes'] = bin2hex(openssl_random_pseudo_bytes(16));
        $key = openssl_pkey_new(['private_key_type' => OPENSSL_KEYTYPE_EC, 'curve_name' => 'prime256v1']);
        $draws['openssl_pkey_new'] = bin2hex(openssl_pkey_get_details($key)['ec']['d']);
        $rsa = file_get_contents(__DIR__ . '/rsa.pub.pem');
        openssl_seal('x', $sealed, $keys, [$rsa], 'aes-128-cbc', $iv);
        $draws['openssl_seal'] = bin2hex($keys[0]);
        $draws['openssl_seal, vector'] = bin2hex($iv);
        openssl_public_encrypt('x', $encrypted, $rsa);
        $draws['openssl_public_encrypt'] = bin2hex($encrypted);
        // Repeating the nonce under one key would reveal the key.
        openssl_sign('x', $signature, $boot['ec'], OPENSSL_ALGO_SHA256);
        $draws['openssl_sign with a key of boot'] = bin2hex($signature);
    }
    if (extension_loaded('sodium')) {
        $draws['sodium_crypto_box_keypair'] = bin2hex(sodium_crypto_box_keypair());
        $draws['sodium_crypto_sign_keypair'] = bin2hex(sodium_crypto_sign_keypair());
        $draws['sodium_crypto_kx_keypair'] = bin2hex(sodium_crypto_kx_keypair());
        $draws['sodium_crypto_secretbox_keygen'] = bin2hex(sodium_crypto_secretbox_keygen());
        $draws['sodium_crypto_box_seal'] = bin2hex(sodium_crypto_box_seal('x', str_repeat("\x09", 32)));
        $draws['sodium_crypto_pwhash_str'] = explode('$', sodium_crypto_pwhash_str('x', 1, 8192))[4];
    }
    if (extension_loaded('sqlite3')) {
        $draws['SQLite'] = (new SQLite3(':memory:'))->querySingle('select hex(randomblob(16))');
        $draws['SQLite of boot'] = $boot['sqlite']->querySingle('select hex(randomblob(16))');
    }
    if ($boot['lcg_value'] ?? true) {
        $draws['lcg_value'] = $many(fn () => sprintf('%.17g', lcg_value()), 3);
    }
    if ($boot['gmp']) {
        $draws['gmp_random_bits'] = gmp_strval(gmp_random_bits(128), 16);
        $bits = gmp_random_bits(...);
        $draws['gmp_random_bits, by a closure'] = gmp_strval($bits(128), 16);
    }
    // Before libuuid and libgd, which seed libc's generator at each use with the time and the process id.
    if (extension_loaded('xsl')) {
        $draws['math:random() of EXSLT'] = random_transformed();
    }
    if (extension_loaded('uuid')) {
        $draws['uuid_create'] = uuid_create(UUID_TYPE_RANDOM);
    }
    if (extension_loaded('zip')) {
        $draws['zip encryption'] = random_zip_salt();
    }
    if (extension_loaded('gd')) {
        $draws['imagescatter'] = random_scattered();
    }
    if (extension_loaded('imagick')) {
        $image = new Imagick;
        $image->newImage(16, 16, new ImagickPixel('gray'));
        $image->addNoiseImage(Imagick::NOISE_GAUSSIAN);
        $draws['addNoiseImage'] = md5(implode(',', $image->exportImagePixels(0, 0, 16, 16, 'RGB', Imagick::PIXEL_CHAR)));
    }
    foreach (random_libraries() as $library => [, $draw]) {
        if (isset($boot[$library])) {
            $data = FFI::new('unsigned char[16]');
            $draw($boot[$library], $data);
            $draws[$library] = bin2hex(FFI::string($data, 16));
        }
    }
    return $draws;
}

/** The random part of a temporary file's name. */
function random_name(): string
{
    $name = tempnam(dirname(__DIR__) . '/state', 'r');
    unlink($name);
    return basename($name);
}

function random_transformed(): string
{
    $number = '<xsl:value-of select="math:random()"/>,';
    $sheet = new DOMDocument;
    $sheet->loadXML('<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform" xmlns:math="http://exslt.org/math">'
        . '<xsl:output method="text"/><xsl:template match="/">' . str_repeat($number, 4) . '</xsl:template></xsl:stylesheet>');
    $document = new DOMDocument;
    $document->loadXML('<x/>');
    $processor = new XSLTProcessor;
    $processor->importStylesheet($sheet);
    return $processor->transformToXml($document);
}

/** The positions of an image's scattered pixels. */
function random_scattered(): string
{
    $image = imagecreatetruecolor(16, 16);
    for ($point = 0; $point < 256; $point++) {
        imagesetpixel($image, $point % 16, intdiv($point, 16), $point);
    }
    imagefilter($image, IMG_FILTER_SCATTER, 2, 8);
    return md5(implode(',', array_map(fn ($point) => imagecolorat($image, $point % 16, intdiv($point, 16)), range(0, 255))));
}

/** The random data of a file in an encrypted archive. */
function random_zip_salt(): string
{
    $file = random_file();
    $zip = new ZipArchive;
    $zip->open($file, ZipArchive::CREATE | ZipArchive::OVERWRITE);
    $zip->addFromString('x', 'x');
    $zip->setEncryptionName('x', ZipArchive::EM_AES_256, 'x');
    $zip->close();
    $data = file_get_contents($file);
    unlink($file);
    $lengths = unpack('vname/vextra', $data, 26);
    return bin2hex(substr($data, 30 + $lengths['name'] + $lengths['extra'], 16));
}

function random_file(): string
{
    return dirname(__DIR__) . '/state/' . getmypid() . '-' . hrtime(true);
}

/** Connects to the test's listeners, which record the random parts of the first bytes. */
function random_connect(array $boot): void
{
    if (isset($_GET['stream'])) {
        // No verification, because reading all certificates dominates the run time.
        $context = stream_context_create(['ssl' => ['verify_peer' => false]]);
        @stream_socket_client("ssl://127.0.0.1:{$_GET['stream']}", $code, $message, 5, STREAM_CLIENT_CONNECT, $context);
    }
    if (isset($_GET['curl'])) {
        foreach ([curl_init(), $boot['curl']] as $curl) {
            curl_setopt($curl, CURLOPT_SSL_VERIFYPEER, false);
            curl_setopt($curl, CURLOPT_URL, "https://127.0.0.1:{$_GET['curl']}/");
            curl_exec($curl);
        }
    }
    if (isset($_GET['form'])) {
        $curl = curl_init("http://127.0.0.1:{$_GET['form']}/");
        curl_setopt($curl, CURLOPT_POSTFIELDS, ['x' => 'x']);
        curl_exec($curl);
    }
    if (isset($_GET['ldap']) && extension_loaded('ldap')) {
        @ldap_bind(ldap_connect("ldaps://127.0.0.1:{$_GET['ldap']}"));
    }
}

/** Responds to the request. */
function random_answer(array $boot): void
{
    random_connect($boot);
    echo json_encode(['worker' => getmypid(), 'draws' => random_draw($boot)], JSON_THROW_ON_ERROR);
}
