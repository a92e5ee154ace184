<?php
// A worker that does what the path of the request says.

namespace Surus\Tests\RoadRunner;

require __DIR__.'/frames.php';

$worker = new Worker();
while ($request = $worker->next()) {
	parse_str($request['rawQuery'], $query);
	$mine = $query['n'] ?? '';
	$response = fn (string $body): string => pack_frame('{"status":200}'.$body, 0, [14]);
	switch (parse_url($request['uri'], PHP_URL_PATH)) {
		case '/hello':
			$worker->respond(200, "hello $mine");
			break;
		case '/pid':
			$worker->respond(200, (string) getmypid());
			break;
		case '/relay':
			$worker->respond(200, (string) getenv('RR_RELAY'));
			break;
		case '/seen':
			$worker->respond(200, implode(' ', $worker->seen));
			break;
		case '/dump':
			$request['body'] = base64_encode($request['body']);
			foreach ($request['headers'] as &$values) {
				$values = array_map(base64_encode(...), $values);
			}
			$worker->respond(200, json_encode($request), ['Content-Type' => ['application/json']]);
			break;
		case '/upload':
			$file = $request['uploads']['f'];
			$file = $file['tmpName'] ?? $file['deep']['tmpName'];
			$moved = isset($query['to']) && rename($file, $query['to']);
			$worker->respond(200, json_encode([
				$request['uploads'], json_decode($request['body']), md5_file($moved ? $query['to'] : $file),
			]));
			break;
		case '/headers':
			$worker->respond(201, 'body', ['X-A' => ['1', '2'], 'Bad Name' => ['3'], 'X-B' => ['4']]);
			break;
		case '/noise':
			echo "noise before\n";
			fwrite(STDERR, "on stderr\n");
			ob_get_level() && ob_flush();
			$worker->respond(200, 'noisy');
			echo "noise without an end";
			break;
		case '/binary':
			$noise = '';
			for ($i = 0; $i < 65536; $i++) {
				$noise .= chr($i * 7919 >> 3 & 0xff).chr($i % 256);
			}
			echo $noise;
			$worker->respond(200, 'noisy');
			break;
		case '/checksum':
			$frame = $response('wrong');
			$frame[7] = chr(ord($frame[7]) ^ 1);
			$worker->write($frame);
			sleep(60);
			break;
		case '/context':
			$worker->write(pack_frame('{"status":200}', 0, [1000]));
			sleep(60);
			break;
		case '/options':
			$worker->write(pack_frame('{"status":200}', 0, []));
			sleep(60);
			break;
		case '/words':
			$worker->write(pack_frame('{"status":200}', 0, [14, 1, 2, 3]));
			sleep(60);
			break;
		case '/message':
			$worker->write(substr(pack_frame(str_repeat('x', 2 << 20), ERROR), 0, 100));
			sleep(60);
			break;
		case '/no-json':
			$worker->write(pack_frame('no json', 0, [7]));
			break;
		case '/no-status':
			$worker->respond(42, '');
			break;
		case '/half':
			$worker->write(substr($response('half of it'), 0, 8));
			exit(3);
		case '/half-body':
			$worker->write(substr($response('half of it'), 0, -4));
			exit(3);
		case '/endless':
			$head = pack('CCV', 0x14, 0, 0xffffffff);
			$worker->write($head.pack('VCCV', crc32($head), 0, 0, 14).'{"status":200}');
			while (true) {
				$worker->write(str_repeat('x', 65536));
			}
		case '/longer':
			$worker->write(substr($response('shorter than it says'), 0, -4));
			sleep(60);
			break;
		case '/silent':
			sleep(60);
			break;
		case '/kill':
			posix_kill(getmypid(), 9);
			sleep(60);
			break;
		case '/kill-during-response':
			$worker->respond(200, 'begun', [], STREAM);
			usleep(100000);
			posix_kill(getmypid(), 9);
			sleep(60);
			break;
		case '/twice':
			$worker->respond(200, "first $mine");
			$worker->respond(200, "second $mine");
			break;
		case '/late-error':
			$worker->respond(200, 'answered');
			$worker->error('terminate failed');
			break;
		case '/error':
			$worker->error('the application failed');
			break;
		case '/stop':
			if (file_exists($query['mark'])) {
				$worker->respond(200, "another worker's");
			} else {
				touch($query['mark']);
				$worker->write(pack_frame('{"stop":true}', 0, [13]));
			}
			break;
		case '/stop-after':
			$end = $query['end'] ?? null;
			$stop = pack_frame('{"stop":true}', 0, [13]);
			if (isset($query['together'])) {
				$worker->write($response((string) getmypid()).$stop);
			} else {
				$worker->respond(200, (string) getmypid());
				$worker->write($stop);
			}
			if (isset($query['sent'])) {
				touch($query['sent']);
			}
			break;
		case '/stop-late':
			$worker->respond(200, (string) getmypid());
			$worker->wait();
			$worker->write(pack_frame('{"stop":true}', 0, [13]));
			match ($query['then']) {
				'serve' => null,
				'exit' => exit(0),
				'hang' => sleep(60),
			};
			break;
		case '/append':
			file_put_contents($query['file'], getmypid()."\n", FILE_APPEND);
			$worker->respond(200, 'appended');
			break;
		case '/exit-after':
			$worker->respond(200, (string) getmypid());
			exit(0);
		case '/memory':
			$worker->respond(200, (string) getmypid());
			$kept[] = str_repeat('x', 8 << 20);
			break;
		case '/stream':
			for ($i = 0; $i < 3; $i++) {
				// Since roadrunner-http 3.5, every frame has the head.
				$worker->respond(200, "piece $i,", ['X-A' => ['1']], STREAM | ($i === 1 ? PING : 0), $i === 0 || isset($query['heads']));
				while (isset($query['gate']) && !file_exists($query['gate'])) {
					usleep(1000);
					clearstatcache();
				}
			}
			$worker->respond(200, 'last', [], 0, false);
			break;
		case '/until-stopped':
			do {
				$worker->respond(200, str_repeat('x', 1000), [], STREAM, !isset($begun));
				$begun = true;
				$read = [STDIN];
				$none = null;
				usleep(1000);
			} while (!stream_select($read, $none, $none, 0));
			unset($begun);
			[, $stream] = $worker->read();
			$worker->seen[] = $stream & STOP ? 'stopped' : 'other';
			$worker->respond(200, '', [], 0, false);
			break;
		case '/hint':
			$worker->respond(103, '', ['Link' => ['</a.css>; rel=preload']], STREAM);
			$worker->respond(200, 'after a hint');
			break;
		default:
			$worker->respond(404, 'no such scene');
	}
}
// It was asked to end.
if (isset($end)) {
	touch($end);
}
