<?php
// System V shared memory and message queues.
return [
    'needs' => ['sysvshm', 'sysvmsg', 'shmop'],
    'survives' => 'it is the system\'s memory',
    'set' => function () { $s = shm_attach(ftok(__FILE__, 'm'), 1000); shm_put_var($s, 1, 'left'); msg_send(msg_get_queue(ftok(__FILE__, 'q')), 1, 'left'); },
    'see' => function () { $s = shm_attach(ftok(__FILE__, 'm'), 1000); return (shm_has_var($s, 1) ? shm_get_var($s, 1) : 'none') . msg_stat_queue(msg_get_queue(ftok(__FILE__, 'q')))['msg_qnum']; },
    'clean' => function () { shm_remove(shm_attach(ftok(__FILE__, 'm'))); msg_remove_queue(msg_get_queue(ftok(__FILE__, 'q'))); },
];
