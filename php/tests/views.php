<?php

// Tests of the views of events.

use Surus\Lambda\Context;
use Surus\Lambda\Event;

$sqs = static fn (
    array ...$records
) => ['Records' => array_map(static fn (array $record) => $record + [
    'eventSource' =>
        'aws:sqs', 'eventSourceARN' =>
        'arn:aws:sqs:eu-west-1:1:jobs', 'body' =>
        '{}', 'attributes' =>
        [
        'ApproximateReceiveCount' => '1'
    ],
], $records)];

return [
    'a message of SQS' => static function () use ($sqs) {
        $event = new Event\Sqs($sqs([
            'messageId' => 'a', 'body' => '{"n":12345678901234567890}', 'attributes' => [
                'ApproximateReceiveCount' => '3',
                'MessageGroupId' => 'tenant'
            ],
            'messageAttributes' => [
                't' => ['stringValue' => 'x', 'dataType' => 'String'],
                'b' => ['binaryValue' => 'AAE=', 'dataType' => 'Binary']
            ],
        ]));
        same(1, count($event));
        foreach ($event as $record) {
            same(
                ['a', 3, 'jobs', null],
                [$record->messageId, $record->receiveCount, $record->queue(), $record->group]
            );
            same(['n' => '12345678901234567890'], $record->json());
            same(['t' => 'x', 'b' => "\0\1"], $record->attributes());
        }
    },
    'a failed message is delivered again with the later ones of its group' =>
    static function () use ($sqs) {
        $fifo = ['eventSourceARN' => 'arn:aws:sqs:eu-west-1:1:jobs.fifo'];
        $message = static fn (string $id, string $group) => $fifo + [
            'messageId' => $id,
            'attributes' => ['MessageGroupId' => $group]
        ];
        $done = [];
        $do = static function (Event\SqsRecord $record) use (&$done) {
            $done[] = $record->messageId;
            '2' === $record->messageId && throw new RuntimeException('no');
        };
        ini_set('error_log', '/dev/null');
        $answer = (
            new Event\Sqs(
                $sqs($message('1', 'a'), $message('2', 'a'), $message('3', 'b'), $message('4', 'a'))
            )
        )->each($do);
        same(
            ['batchItemFailures' => [['itemIdentifier' => '2'], ['itemIdentifier' => '4']]],
            $answer
        );
        same(['1', '2', '3'], $done);
        same(null, (new Event\Sqs($sqs(['messageId' => '1'], ['messageId' => '3'])))->each($do));
        // Without order, the others still run.
        same(
            [['itemIdentifier' => '2']],
            (
                new Event\Sqs($sqs(['messageId' => '2'], ['messageId' => '3']))
            )->each($do)['batchItemFailures']
        );
        // The error of a single message is the error of the event.
        throws(
            RuntimeException::class,
            'no',
            static fn () => (new Event\Sqs($sqs(['messageId' => '2'])))->each($do)
        );
    },
    'other groups run first when a failed group is delivered again' =>
    static function () use ($sqs) {
        ini_set('error_log', '/dev/null');
        $message = static fn (
            string $id,
            int $receives
        ) => ['messageId' => $id, 'eventSourceARN' => 'arn:aws:sqs:eu-west-1:1:jobs.fifo',
            'attributes' => [
                'MessageGroupId' => $id[0],
                'ApproximateReceiveCount' => (string) $receives
            ]];
        $order = static function (int $receives, bool $goOn = false) use ($sqs, $message): string {
            $done = '';
            (
                new Event\Sqs(
                    $sqs(
                        ...array_map(
                            static fn (string $id) => $message($id, $receives),
                            ['a1', 'b1', 'a2', 'c1', 'b2']
                        )
                    )
                )
            )
                ->each(static function (Event\SqsRecord $record) use (&$done) {
                    $done .= $record->messageId;
                    'a1' === $record->messageId && throw new RuntimeException('no');
                }, null, $goOn);

            return $done;
        };
        same(['a1b1c1b2', 'b1b2c1a1', 'c1a1b1b2', 'a1b1b2c1'], array_map($order, [1, 2, 3, 4]));
        same('a1b1a2c1b2', $order(1, true));
    },
    'records after a failure are delivered again, in Kafka only those of its partition' =>
    static function () {
        $stream = static fn (string $source, string $part) => ['Records' => array_map(
            static fn (string $number) => [
                'eventSource' => "aws:$source",
                $part => ['sequenceNumber' => $number, 'SequenceNumber' => $number]
            ], ['1', '2', '3'],
        )];
        $fails = static fn (
            Event\KinesisRecord|Event\DynamoDbRecord $record
        ) => '2' === $record->sequenceNumber
            ? throw new RuntimeException('no')
            : null;
        $from2 = ['batchItemFailures' => [['itemIdentifier' => '2'], ['itemIdentifier' => '3']]];
        same($from2, (new Event\Kinesis($stream('kinesis', 'kinesis')))->each($fails));
        same($from2, (new Event\DynamoDb($stream('dynamodb', 'dynamodb')))->each($fails));
        $record = static fn (int $partition, int $offset) => [
            'topic' => 't',
            'partition' => $partition,
            'offset' => $offset
        ];
        $kafka = new Event\Kafka(
            [
                'eventSource' => 'SelfManagedKafka',
                'records' => [
                    't-0' => [$record(0, 1), $record(0, 2), $record(0, 3)],
                    't-1' => [$record(1, 2), $record(1, 3)]
                ]
            ]
        );
        $done = [];
        $answer = $kafka->each(static function (Event\KafkaRecord $record) use (&$done) {
            $done[] = "$record->partition@$record->offset";
            '0@2' === end($done) && throw new RuntimeException('no');
        });
        same(
            [
                'batchItemFailures' => [
                    ['itemIdentifier' => ['partition' => 't-0', 'offset' => 2]],
                    ['itemIdentifier' => ['partition' => 't-0', 'offset' => 3]]
                ]
            ],
            $answer
        );
        same(['0@1', '0@2', '1@2', '1@3'], $done);
    },
    'records without time left are delivered again' => static function () use ($sqs) {
        $event = new Event\Sqs(
            $sqs(['messageId' => '1'], ['messageId' => '2'], ['messageId' => '3'])
        );
        $late = new Context(deadlineMs: (int) (microtime(true) * 1000) + 100);
        $done = [];
        $do = static function (Event\SqsRecord $record) use (&$done) {
            $done[] = $record->messageId;
        };
        same(
            ['batchItemFailures' => [['itemIdentifier' => '2'], ['itemIdentifier' => '3']]],
            $event->each($do, $late)
        );
        same(['1'], $done);
        same(
            null,
            $event->each($do, new Context(deadlineMs: (int) (microtime(true) * 1000) + 3600000))
        );
        same(null, $event->each($do, new Context()));
    },
    'a notification of SNS' => static function () {
        [$record] = (new Event\Sns(['Records' => [['EventSource' => 'aws:sns', 'Sns' => [
            'MessageId' =>
                'm', 'Message' =>
                '{"a":1}', 'Subject' =>
                null, 'TopicArn' =>
                'arn:t', 'Timestamp' =>
                '2026-01-02T03:04:05.678Z',
            'MessageAttributes' => [
                'x' => ['Type' => 'String', 'Value' => 'y'],
                'b' => ['Type' => 'Binary', 'Value' => 'AAE=']
            ],
        ]]]]))->records;
        same(
            ['m', ['a' => 1], null, 'arn:t', '2026-01-02 03:04:05.678'],
            [
                $record->messageId,
                $record->json(),
                $record->subject,
                $record->topicArn,
                $record->timestamp->format('Y-m-d H:i:s.v')
            ]
        );
        same(['x' => 'y', 'b' => "\0\1"], $record->attributes());
    },
    'an object of S3 with its decoded key' => static function () {
        [
            $record
        ] =
            (new Event\S3(['Records' => [['eventSource' => 'aws:s3',
            'eventName' => 'ObjectCreated:Put', 'eventTime' => '2026-01-02T03:04:05.000Z',
            's3' => [
                'bucket' => ['name' => 'b'],
                'object' => ['key' => 'a+b%2Bc/%C3%A4.txt', 'size' => 3]
            ]]]]))->records;
        same(
            ['ObjectCreated:Put', 'b', 'a b+c/ä.txt', 3, null],
            [$record->name, $record->bucket, $record->key, $record->size, $record->versionId]
        );
    },
    'an event of EventBridge' => static function () {
        $event = new Event\EventBridge(
            [
                'id' => 'i',
                'detail-type' => 'Scheduled Event',
                'source' => 'aws.events',
                'time' => '2026-01-02T03:04:05Z',
                'resources' => ['arn:r'],
                'detail' => []
            ]
        );
        same(
            ['i', 'Scheduled Event', 'aws.events', [], ['arn:r'], 2026],
            [
                $event->id,
                $event->detailType,
                $event->source,
                $event->detail,
                $event->resources,
                (int) $event->time->format('Y')
            ]
        );
    },
    'a change in DynamoDB as PHP values' => static function () {
        [
            $record
        ] =
            (new Event\DynamoDb(['Records' => [['eventSource' => 'aws:dynamodb',
            'eventName' => 'MODIFY', 'dynamodb' => [
            'SequenceNumber' => '1', 'Keys' => ['Id' => ['N' => '101']],
            'NewImage' => [
                's' => ['S' => 'x'], 'n' => ['N' => '-1.5'], 'exact' => [
                    'N' => '12345678901234567890.5'
                ], 'b' => ['B' => 'AAE='], 't' => ['BOOL' => true], 'null' => ['NULL' => true],
                'list' => [
                    'L' => [['S' => 'a'], ['N' => '1']]
                ], 'map' => [
                    'M' => ['k' => ['L' => []]]
                ], 'ss' => ['SS' => ['a']], 'ns' => [
                    'NS' => ['1', '2.5']
                ], 'bs' => ['BS' => ['AAE=']],
            ],
        ]]]]))->records;
        same(
            ['MODIFY', '1', ['Id' => 101], null],
            [$record->name, $record->sequenceNumber, $record->keys, $record->oldImage]
        );
        same([
            's' =>
                'x', 'n' =>
                -1.5, 'exact' =>
                '12345678901234567890.5', 'b' =>
                "\0\1", 't' =>
                true, 'null' =>
                null,
            'list' => ['a', 1], 'map' => [
                'k' => []
            ], 'ss' => ['a'], 'ns' => [1, 2.5], 'bs' => ["\0\1"],
        ], $record->newImage);
    },
    'a record of Kinesis, decoded' => static function () {
        [$record] = (
            new Event\Kinesis(
                [
                    'Records' => [
                        [
                            'eventSource' => 'aws:kinesis',
                            'kinesis' => [
                                'data' => base64_encode('{"a":"ä"}'),
                                'partitionKey' => 'p',
                                'sequenceNumber' => '49',
                                'approximateArrivalTimestamp' => 1545084650.987
                            ]
                        ]
                    ]
                ]
            )
        )->records;
        same(
            [['a' => 'ä'], 'p', '49', '1545084650.987'],
            [
                $record->json(),
                $record->partitionKey,
                $record->sequenceNumber,
                $record->arrival->format('U.v')
            ]
        );
    },
    'records of Kafka, partition after partition' => static function () {
        $event = new Event\Kafka(['eventSource' => 'aws:kafka', 'records' => [
            't-0' => [
                [
                    'topic' => 't',
                    'partition' => 0,
                    'offset' => 15,
                    'timestamp' => 1545084650987,
                    'key' => 'a2V5',
                    'value' => 'eyJhIjoxfQ==',
                    'headers' => [['h' => [104, -61, 164]], ['h' => []]]
                ]
            ],
            't-1' => [
                ['topic' => 't', 'partition' => 1, 'offset' => 1, 'timestamp' => 0, 'value' => null]
            ],
        ]]);
        [$first, $second] = $event->records;
        same(
            ['t', 0, 15, 'key', ['a' => 1], [['h', 'hä'], ['h', '']], '1545084650.987'],
            [
                $first->topic,
                $first->partition,
                $first->offset,
                $first->key,
                $first->json(),
                $first->headers,
                $first->time->format('U.v')
            ]
        );
        same([1, null, null], [$second->partition, $second->key, $second->value]);
    },
    'an event of another type is an error that names it' => static function () use ($sqs) {
        throws(
            Event\NotThisEvent::class,
            'not from SQS: it has detail-type',
            static fn () => new Event\Sqs(['detail-type' => 'x'])
        );
        throws(
            Event\NotThisEvent::class,
            'not from Kafka: it is string',
            static fn () => new Event\Kafka('x')
        );
        throws(
            Event\NotThisEvent::class,
            'not from S3',
            static fn () => new Event\S3($sqs(['messageId' => 'a']))
        );
        throws(
            Event\NotThisEvent::class,
            'not from EventBridge: it has no fields',
            static fn () => new Event\EventBridge([])
        );
    },
];
