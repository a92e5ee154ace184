<?php
// 10 KB of HTML, every cell escaped.
header('Content-Type: text/html; charset=utf-8');
echo "<!doctype html>\n<title>Elephants &amp; passes</title>\n<table>\n";
for ($row = 1; $row <= 80; ++$row) {
    $name = "Elephant <$row> of \"Hannibal\" & sons";
    echo '<tr><td>', $row, '</td><td>', htmlspecialchars($name), '</td><td>', htmlspecialchars(str_repeat('a<b ', 5)), "</td></tr>\n";
}
echo "</table>\n";
