<?php
// Exercises each extension in the boot and in every request. The response must be the same each time.
// Those in `$connecting` need a server and run in requests only, because the boot may not leave a connection open.

$file = static fn (string $name): string => sys_get_temp_dir()."/surus-$name-".getmypid();

$exercises = [
    'apcu' => function () {
        apcu_store('k', ['a' => 1]);
        return apcu_fetch('k')['a'];
    },
    'bcmath' => fn () => bcpowmod('123456789', '987654321', '1000000007'),
    'curl' => function () use ($file) {
        file_put_contents($file('curl'), 'content');
        $curl = curl_init('file://'.$file('curl'));
        curl_setopt($curl, CURLOPT_RETURNTRANSFER, true);
        $multi = curl_multi_init();
        curl_multi_add_handle($multi, $curl);
        do {
            curl_multi_exec($multi, $running);
        } while ($running);
        // curl looks up the name in a thread.
        $lookup = curl_init('http://localhost:1/');
        curl_setopt($lookup, CURLOPT_RETURNTRANSFER, true);
        curl_exec($lookup);
        unlink($file('curl'));
        return curl_multi_getcontent($curl).curl_errno($lookup);
    },
    'dom' => function () {
        $document = new DOMDocument;
        $document->loadHTML('<p>a<b>c</b></p>');
        return (new DOMXPath($document))->query('//b')->item(0)->textContent;
    },
    'enchant' => function () {
        $broker = enchant_broker_init();
        $dict = enchant_broker_request_dict($broker, 'en_US');
        return $dict ? json_encode(enchant_dict_check($dict, 'helllo')) : 'no dictionary';
    },
    'exif' => fn () => exif_tagname(256),
    'fileinfo' => fn () => (new finfo(FILEINFO_MIME_TYPE))->buffer("\x89PNG\r\n\x1a\n\0\0\0\rIHDR"),
    'gd' => function () {
        $image = imagecreatetruecolor(200, 200);
        imagefilledellipse($image, 100, 100, 50, 50, 0xff0000);
        imagestring($image, 5, 1, 1, 'hello', 0xffffff);
        ob_start();
        imagepng($image);
        imagejpeg(imagescale($image, 50));
        return md5(ob_get_clean());
    },
    'gettext' => fn () => gettext('word').(bindtextdomain('x', '/tmp') ? 1 : 0),
    'gmp' => fn () => gmp_strval(gmp_powm(gmp_init('123456789123456789'), 65537, gmp_nextprime('1000000000000'))),
    'iconv' => fn () => bin2hex(iconv('UTF-8', 'UTF-16LE//TRANSLIT', 'äö')),
    'igbinary' => fn () => igbinary_unserialize(igbinary_serialize(['a' => [1, 2]]))['a'][1],
    'imagick' => function () {
        $image = new Imagick;
        $image->newImage(1500, 1500, new ImagickPixel('red'));
        $image->gaussianBlurImage(2, 1);
        $image->resizeImage(100, 100, Imagick::FILTER_LANCZOS, 1);
        $image->setImageFormat('png');
        return strlen($image->getImageBlob()) > 100 ? $image->getImageWidth() : 'broken';
    },
    'imap' => fn () => json_encode(imap_rfc822_parse_adrlist('A <a@b.c>', 'x')[0]->mailbox).@imap_open('{127.0.0.1:1/novalidate-cert}', 'a', 'b', 0, 0).(imap_errors() ? 1 : 0),
    'intl' => function () {
        $collator = new Collator('de_DE');
        $format = new NumberFormatter('de_DE', NumberFormatter::CURRENCY);
        $date = new IntlDateFormatter('fr_FR', IntlDateFormatter::FULL, IntlDateFormatter::NONE, 'UTC');
        return $collator->compare('ä', 'z').$format->formatCurrency(1234.5, 'EUR').$date->format(0)
            .Normalizer::normalize("a\u{308}").transliterator_transliterate('Any-Latin; Latin-ASCII', 'Ж').idn_to_ascii('ä.de');
    },
    'ldap' => function () {
        $ldap = ldap_connect('ldap://127.0.0.1:1');
        ldap_set_option($ldap, LDAP_OPT_PROTOCOL_VERSION, 3);
        return json_encode(@ldap_bind($ldap)).ldap_errno($ldap).ldap_escape('(a)');
    },
    'mbstring' => fn () => mb_strtoupper('äöü').mb_convert_encoding('ä', 'UTF-16').mb_ereg_replace('[a-z]', 'x', 'abc'),
    'msgpack' => fn () => msgpack_unpack(msgpack_pack(['a' => 5]))['a'],
    'openssl' => function () {
        $key = openssl_pkey_new(['private_key_type' => OPENSSL_KEYTYPE_EC, 'curve_name' => 'prime256v1']);
        openssl_sign('data', $signature, $key);
        return openssl_verify('data', $signature, openssl_pkey_get_details($key)['key'])
            .bin2hex(openssl_encrypt('x', 'aes-128-gcm', str_repeat('k', 16), OPENSSL_RAW_DATA, str_repeat('i', 12), $tag));
    },
    'pdo_sqlite' => function () {
        $db = new PDO('sqlite::memory:');
        $db->exec('CREATE TABLE t (a INTEGER)');
        $db->prepare('INSERT INTO t VALUES (?)')->execute([7]);
        return $db->query('SELECT a FROM t')->fetchColumn();
    },
    'phar' => function () use ($file) {
        $phar = new PharData($file('phar').'.tar');
        $phar['a.txt'] = 'inside';
        $text = file_get_contents('phar://'.$file('phar').'.tar/a.txt');
        unset($phar);
        Phar::unlinkArchive($file('phar').'.tar');
        return $text;
    },
    'pspell' => fn () => json_encode(pspell_check(pspell_new('en'), 'helllo')),
    'simplexml' => fn () => (string) simplexml_load_string('<a><b c="d">e</b></a>')->b['c'],
    'snmp' => fn () => json_encode(@snmp2_get('127.0.0.1:1', 'public', '.1.3.6.1.2.1.1.5.0', 10000, 0)),
    'soap' => fn () => get_class(new SoapClient(null, ['location' => 'http://127.0.0.1:1/', 'uri' => 'x'])),
    'sockets' => function () {
        socket_create_pair(AF_UNIX, SOCK_STREAM, 0, $pair);
        socket_write($pair[0], 'through');
        return socket_read($pair[1], 20);
    },
    'sodium' => function () {
        $nonce = str_repeat('n', SODIUM_CRYPTO_SECRETBOX_NONCEBYTES);
        $key = sodium_crypto_generichash('key');
        return sodium_crypto_secretbox_open(sodium_crypto_secretbox('secret', $nonce, $key), $nonce, $key)
            .strlen(sodium_crypto_sign_keypair());
    },
    'sqlite3' => function () use ($file) {
        $db = new SQLite3($file('sqlite'));
        $db->exec('PRAGMA journal_mode=WAL; CREATE TABLE t (a TEXT); INSERT INTO t VALUES ("row")');
        $row = $db->querySingle('SELECT a FROM t');
        $db->close();
        array_map('unlink', glob($file('sqlite').'*'));
        return $row;
    },
    'ssh2' => fn () => json_encode(@ssh2_connect('127.0.0.1', 1)),
    'sysvshm' => function () {
        $segment = shm_attach(getmypid(), 10000);
        shm_put_var($segment, 1, 'shared');
        $value = shm_get_var($segment, 1);
        shm_remove($segment);
        return $value;
    },
    'shmop' => function () {
        $block = shmop_open(getmypid() + (1 << 24), 'n', 0600, 4096);
        shmop_write($block, 'block', 0);
        $text = shmop_read($block, 0, 5);
        shmop_delete($block);
        return $text;
    },
    'tidy' => fn () => tidy_get_output(tidy_parse_string('<p>x', ['show-body-only' => true])),
    'uuid' => fn () => uuid_is_valid(uuid_create()) ? uuid_type('6ba7b810-9dad-11d1-80b4-00c04fd430c8') : 'invalid',
    'xml' => function () {
        $names = '';
        $parser = xml_parser_create();
        xml_set_element_handler($parser, function ($p, $name) use (&$names) { $names .= $name; }, fn () => 1);
        xml_parse($parser, '<a><b/></a>', true);
        return $names;
    },
    'xmlreader' => function () {
        $reader = XMLReader::XML('<a>text</a>');
        $reader->read();
        return $reader->readString();
    },
    'xmlrpc' => fn () => xmlrpc_decode(xmlrpc_encode(['n' => 9]))['n'],
    'xmlwriter' => function () {
        $writer = new XMLWriter;
        $writer->openMemory();
        $writer->writeElement('a', 'b');
        return $writer->outputMemory();
    },
    'xsl' => function () {
        $sheet = '<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform"><xsl:template match="/"><r><xsl:value-of select="a"/></r></xsl:template></xsl:stylesheet>';
        $load = function (string $xml) {
            $document = new DOMDocument;
            $document->loadXML($xml);
            return $document;
        };
        $processor = new XSLTProcessor;
        $processor->importStylesheet($load($sheet));
        return trim($processor->transformToXml($load('<a>t</a>')));
    },
    'yaml' => fn () => yaml_parse(yaml_emit(['a' => ['b' => 'c']]))['a']['b'],
    'zip' => function () use ($file) {
        $zip = new ZipArchive;
        $zip->open($file('zip'), ZipArchive::CREATE);
        $zip->addFromString('a', str_repeat('b', 100000));
        $zip->close();
        $zip->open($file('zip'));
        $length = strlen($zip->getFromName('a'));
        $zip->close();
        unlink($file('zip'));
        return $length;
    },
];

// Keep the boot's objects: this is the harder case, because every rewound request meets them.
$connecting = [
    'memcached' => function () {
        $memcached = new Memcached;
        $memcached->addServer(getenv('MEMCACHED'), 0);
        $memcached->set('k', ['v']);
        return $memcached->get('k')[0];
    },
    'mysqli' => function () {
        $db = new mysqli(null, 'root', '', '', 0, getenv('MYSQL'));
        return $db->execute_query('SELECT ? + 1 AS a', [1])->fetch_row()[0];
    },
    'pdo_mysql' => function () {
        $db = new PDO('mysql:unix_socket='.getenv('MYSQL'), 'root', '', [PDO::ATTR_PERSISTENT => true]);
        $statement = $db->prepare('SELECT ? + 1');
        $statement->execute([1]);
        return (int) $statement->fetchColumn();
    },
    'pdo_pgsql' => function () {
        $db = new PDO('pgsql:dbname=postgres;user=postgres;host='.getenv('POSTGRES'));
        $statement = $db->prepare('SELECT ?::int + 1');
        $statement->execute([1]);
        return $statement->fetchColumn();
    },
    'pgsql' => function () {
        $db = pg_pconnect('dbname=postgres user=postgres host='.getenv('POSTGRES'));
        return pg_fetch_result(pg_query_params($db, 'SELECT $1::int + 1', [1]), 0, 0);
    },
    'redis' => function () {
        $redis = new Redis;
        $redis->pconnect(getenv('REDIS'));
        $redis->set('k', 'v');
        return $redis->get('k');
    },
];

foreach ($exercises as $name => $exercise) {
    if (extension_loaded($name)) {
        $booted[$name] = $exercise();
    }
}

surus_serve(function () use ($exercises, $connecting) {
    $exercise = ($exercises + $connecting)[$_GET['extension']];
    header('X-Pid: '.getmypid());
    header('X-Descriptors: '.count(scandir('/proc/self/fd')));
    $before = $GLOBALS['booted'][$_GET['extension']] ?? null;
    $answer = $exercise();
    echo extension_loaded($_GET['extension']) ? '' : 'not loaded ', $answer === ($before ?? $answer) ? '' : "not $before but ", $answer;
});
