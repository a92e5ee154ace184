<?php
header('X-Method: ' . $_SERVER['REQUEST_METHOD']);
echo $_SERVER['REQUEST_METHOD'], ' ', $_SERVER['SERVER_PROTOCOL'], "\n";
