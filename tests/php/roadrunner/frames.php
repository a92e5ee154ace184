<?php
// Speaks the frames of RoadRunner (docs/internals/roadrunner.md), for workers of the tests.

namespace Surus\Tests\RoadRunner;

const CONTROL = 0x01, ERROR = 0x40, PROTO = 0x80;
const STREAM = 0x01, STOP = 0x02, PING = 0x04, PONG = 0x08;

function pack_frame(string $payload, int $flags = 0, array $options = [], int $stream = 0): string
{
	$head = pack('CCV', 0x10 | 3 + count($options), $flags, strlen($payload));

	return $head.pack('VCC', crc32($head), $stream, 0).pack('V*', ...$options).$payload;
}

final class Worker
{
	public bool $is_protobuf = false;
	/** The frames that arrived in place of a request, by their names. */
	public array $seen = [];
	private $in = STDIN;
	private $out = STDOUT;

	public function __construct()
	{
		$relay = getenv('RR_RELAY');
		if ($relay !== 'pipes') {
			$this->in = $this->out = stream_socket_client($relay);
		}
	}

	/** The next frame: its flags, the bits of byte 10, its options and its payload. */
	public function read(): ?array
	{
		$head = $this->take(12);
		if ($head === null) {
			return null;
		}
		['words' => $words, 'flags' => $flags, 'len' => $len, 'crc' => $crc, 'stream' => $stream]
			= unpack('Cwords/Cflags/Vlen/Vcrc/Cstream', $head);
		if ($crc !== crc32(substr($head, 0, 6))) {
			throw new \Exception('a frame with a wrong checksum');
		}
		$options = ($words & 0x0f) > 3 ? array_values(unpack('V*', $this->take((($words & 0x0f) - 3) * 4))) : [];

		return [$flags, $stream, $options, $len ? $this->take($len) : ''];
	}

	private function take(int $len): ?string
	{
		$bytes = '';
		while (strlen($bytes) < $len) {
			$piece = fread($this->in, $len - strlen($bytes));
			if ($piece === '' || $piece === false) {
				return null;
			}
			$bytes .= $piece;
		}

		return $bytes;
	}

	public function write(string $bytes): void
	{
		while ($bytes !== '') {
			$written = fwrite($this->out, $bytes);
			if (!$written) {
				exit(9);
			}
			$bytes = substr($bytes, $written);
		}
		fflush($this->out);
	}

	/** Waits until the server has sent something. */
	public function wait(): void
	{
		$read = [$this->in];
		$none = null;
		stream_select($read, $none, $none, null);
	}

	/** The next request, or null at the end. */
	public function next(): ?array
	{
		while ($frame = $this->read()) {
			[$flags, $stream, $options, $payload] = $frame;
			if ($flags & CONTROL) {
				if (isset(json_decode($payload, true)['stop'])) {
					return null;
				}
				$this->write(pack_frame(json_encode(['pid' => getmypid()]), CONTROL));
				continue;
			}
			if ($stream & (STOP | PONG)) {
				$this->seen[] = $stream & STOP ? 'stop' : 'pong';
				continue;
			}
			$context = substr($payload, 0, $options[0]);
			$this->is_protobuf = $context[0] !== '{';
			$request = $this->is_protobuf ? from_protobuf($context) : json_decode($context, true, 512, JSON_THROW_ON_ERROR);

			return ['body' => substr($payload, $options[0])] + $request;
		}

		return null;
	}

	public function respond(int $status, string $body, array $headers = [], int $stream = 0, bool $has_head = true): void
	{
		$context = match (true) {
			!$has_head => '',
			$this->is_protobuf => to_protobuf($status, $headers),
			default => json_encode(['status' => $status, 'headers' => $headers ?: (object) []], JSON_THROW_ON_ERROR),
		};
		$this->write(pack_frame($context.$body, $this->is_protobuf ? PROTO : 0, [strlen($context)], $stream));
	}

	public function error(string $text): void
	{
		$this->write(pack_frame($text, ERROR));
	}
}

function varint(string $bytes, int &$at): int
{
	for ($value = $shift = 0;; $shift += 7) {
		$byte = ord($bytes[$at++]);
		$value |= ($byte & 0x7f) << $shift;
		if ($byte < 0x80) {
			return $value;
		}
	}
}

/** The fields of a message: pairs of a number and an integer or bytes. */
function fields(string $bytes): array
{
	$fields = [];
	for ($at = 0; $at < strlen($bytes);) {
		$tag = varint($bytes, $at);
		$value = varint($bytes, $at);
		if (($tag & 7) === 2) {
			$len = $value;
			$value = substr($bytes, $at, $len);
			$at += $len;
		}
		$fields[] = [$tag >> 3, $value];
	}

	return $fields;
}

function from_protobuf(string $context): array
{
	$names = [1 => 'remoteAddr', 'protocol', 'method', 'uri', 'headers', 'cookies', 'rawQuery', 'parsed', 'uploads', 'attributes'];
	$request = ['parsed' => false, 'uploads' => null, 'rawQuery' => '', 'headers' => [], 'cookies' => [], 'attributes' => []];
	foreach (fields($context) as [$number, $value]) {
		$name = $names[$number];
		if (in_array($name, ['headers', 'cookies', 'attributes'])) {
			$entry = array_column(fields($value), 1, 0);
			$values = array_column(fields($entry[2] ?? ''), 1);
			$request[$name][$entry[1]] = $name === 'headers' ? $values : $values[0];
		} elseif ($name === 'uploads') {
			$request[$name] = json_decode($value, true);
		} else {
			$request[$name] = $name === 'parsed' ? (bool) $value : $value;
		}
	}

	return $request;
}

function put_varint(int $value): string
{
	for ($bytes = ''; $value >= 0x80; $value >>= 7) {
		$bytes .= chr($value & 0x7f | 0x80);
	}

	return $bytes.chr($value);
}

function put_bytes(int $field, string $bytes): string
{
	return put_varint($field << 3 | 2).put_varint(strlen($bytes)).$bytes;
}

function to_protobuf(int $status, array $headers): string
{
	$context = "\x08".put_varint($status);
	foreach ($headers as $name => $values) {
		$list = implode('', array_map(fn ($value) => put_bytes(1, $value), (array) $values));
		$context .= put_bytes(2, put_bytes(1, $name).put_bytes(2, $list));
	}

	return $context;
}
