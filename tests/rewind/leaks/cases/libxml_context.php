<?php
// The stream context of libxml.
return [
    'needs' => ['dom'],
    'leaks' => false,
    'why' => 'each request finds that of the boot',
    'set' => function () { stream_wrapper_register('leakxml', 'LeakXmlWrapper'); libxml_set_streams_context(stream_context_create(['leakxml' => ['left' => 'left']])); },
    'see' => function () {
        in_array('leakxml', stream_get_wrappers()) || stream_wrapper_register('leakxml', 'LeakXmlWrapper');
        @(new DOMDocument)->load('leakxml://x');
        return LeakXmlWrapper::$saw;
    },
];
class LeakXmlWrapper
{
    public $context;
    public static $saw = 'nothing';
    public function stream_open($path, $mode, $options, &$opened) { self::$saw = json_encode($this->context ? stream_context_get_options($this->context) : null); return false; }
    public function url_stat() { return []; }
}
