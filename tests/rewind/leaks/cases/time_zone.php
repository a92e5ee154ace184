<?php
// date_default_timezone_set.
return [
    'set' => function () { date_default_timezone_set('Asia/Tokyo'); },
    'see' => fn () => date_default_timezone_get() . date('T', 0) . (new DateTime('@0'))->setTimezone(new DateTimeZone(date_default_timezone_get()))->format('c'),
];
