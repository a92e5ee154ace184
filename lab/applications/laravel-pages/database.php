<?php

/* Creates the database with 40 notes, and without users: nobody logs in. */

$database = new PDO('sqlite:'.__DIR__.'/storage/main.sqlite');
$database->exec('CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT, password TEXT)');
$database->exec('CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT, owner TEXT)');
$insert = $database->prepare('INSERT INTO notes (text, owner) VALUES (?, ?)');
for ($day = 1; $day <= 40; ++$day) {
    $insert->execute(["Day $day in the Alps: elephants do not like snow.", 'hannibal']);
}
chmod(__DIR__.'/storage/main.sqlite', 0666);
