<?php

return [
    'title' => '{0} No reports|{1} One report|[2,*] :count reports',
    'written' => 'Written: :text',
    'length' => ':length characters',
];
