<?php

return [
    'title' => '{0} Keine Berichte|{1} Ein Bericht|[2,*] :count Berichte',
    'written' => 'Geschrieben: :text',
    'length' => ':length Zeichen',
];
