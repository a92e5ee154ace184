<?php

namespace Surus\Symfony;

use Surus\ServerUrl;
use Symfony\Component\Messenger\Bridge\Amqp\Transport\AmqpReceivedStamp;
use Symfony\Component\Messenger\Bridge\Amqp\Transport\Connection;

/** Tells `surus work` where an AMQP transport's messages are, and Messenger where one came from. */
final class Amqp
{
    public static function describe(Connection $connection): array
    {
        $options = self::read($connection, 'connectionOptions');
        if ($options['auto_setup'] ?? true) {
            // Creates exchange, queues and bindings where Messenger would.
            $connection->setup();
        }
        // php-amqp uses TLS if it has a file of certificate authorities.
        $tls = '' !== (string) ($options['cacert'] ?? \ini_get('amqp.cacert'));
        if ($tls && '' !== (string) ($options['cert'] ?? \ini_get('amqp.cert'))) {
            return ['driver' => 'RabbitMQ with a certificate of the client'];
        }

        return [
            'driver' => 'amqp',
            'url' => ServerUrl::amqp(
                $tls, (string) $options['host'], (int) $options['port'], (string) (
                    $options['login'] ?? $options['user'] ?? 'guest'
                ),
                (string) ($options['password'] ?? 'guest'), (string) $options['vhost'],
            ),
            'queues' => array_map(strval(...), $connection->getQueueNames()),
        ];
    }

    /** Closes the connection, if there is one. */
    public static function disconnect(Connection $connection): void
    {
        if ($channel = self::read($connection, 'amqpChannel')) {
            $channel->getConnection()->disconnect();
            \Closure::bind(fn () => $this->clear(), $connection, Connection::class)();
        }
    }

    /** The stamp by which Messenger sends a message again to the queue that it is from. */
    public static function received(array $message): AmqpReceivedStamp
    {
        $from = $message['amqp'];
        $envelope = new \AMQPEnvelope();
        $properties = array_filter($from['properties'], static fn ($value) => null !== $value);
        self::write(
            $envelope,
            \AMQPBasicProperties::class,
            $properties + ['headers' => $message['headers']]
        );
        self::write($envelope, \AMQPEnvelope::class, [
            'body' => $message['body'],
            'exchange_name' => $from['exchange'],
            'routing_key' => $from['routing_key'],
            'is_redelivery' => $from['is_redelivery'],
        ]);

        return new AmqpReceivedStamp($envelope, $from['queue']);
    }

    /**
     * Sets properties for which php-amqp has no methods. Their names in its version 2 have no
     * underscores.
     */
    private static function write(\AMQPEnvelope $envelope, string $class, array $values): void
    {
        foreach ($values as $name => $value) {
            $name = property_exists($class, $name)
                ? $name
                : lcfirst(str_replace('_', '', ucwords($name, '_')));
            (new \ReflectionProperty($class, $name))->setValue($envelope, $value);
        }
    }

    private static function read(object $object, string $property): mixed
    {
        return \Closure::bind(fn () => $this->$property ?? null, $object, Connection::class)();
    }
}
