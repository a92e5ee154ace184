//! Tests that a request leaves nothing behind for the next, as under php-fpm.

engine_contract! {
    isolating:
    fn globals_statics_constants_and_classes_are_new_in_every_request(engine) {
        let engine = engine.workers(1);
        let file = engine.file(
            "class C { static $n = 0; } function f() { static $n = 0; return ++$n; }
             $GLOBALS['g'] = ($GLOBALS['g'] ?? 0) + 1; C::$n++; $d = defined('D'); define('D', 1);
             echo json_encode([$GLOBALS['g'], C::$n, f(), $d]);",
        );
        for _ in 0..3 {
            assert_eq!(engine.answer(engine.ask(&file)).await.unwrap().text(), "[1,1,1,false]");
        }
    }

    fn settings_and_environment_are_restored(engine) {
        let engine = engine.workers(1).ini("precision", "14");
        let state = "echo json_encode([ini_get('precision'), ini_get('memory_limit'), \
            getenv('LEFT'), sprintf('%o', umask()), getcwd() === __DIR__, setlocale(LC_ALL, 0), \
            date_default_timezone_get(), error_reporting(), mb_internal_encoding(), \
            get_include_path(), ob_get_level()]);";
        let before = engine.text(state).await;
        engine.text(
            "ini_set('precision', 3); ini_set('memory_limit', '77M'); putenv('LEFT=1'); \
                umask(0777); chdir('/'); setlocale(LC_ALL, 'C.UTF-8');
             date_default_timezone_set('Asia/Tokyo'); error_reporting(0); \
             mb_internal_encoding('EUC-JP'); set_include_path('/x'); ob_start();",
        ).await;
        assert_eq!(engine.text(state).await, before);
    }

    fn handlers_and_streams_end_with_their_request(engine) {
        let engine = engine.workers(1);
        engine.text(
            "set_error_handler(fn() => true); set_exception_handler(fn() => 1); \
                spl_autoload_register(fn() => 1); stream_wrapper_unregister('http');
             header_register_callback(function () {}); register_shutdown_function(function () { \
             echo 1; });",
        ).await;
        let state = engine.text("echo json_encode([set_error_handler(null), \
            set_exception_handler(null), spl_autoload_functions(), in_array('http', \
            stream_get_wrappers())]);").await;
        assert_eq!(state, "[null,null,[],true]");
    }

    fn signal_handlers_end_with_their_request(engine) {
        let engine = engine.workers(1);
        // As in the kernel: ignored and caught signals.
        let state = "echo implode(' ', preg_grep('/^Sig(Ign|Cgt)/', file('/proc/self/status')));";
        let before = engine.text(state).await;
        let changed = engine.text(&format!("pcntl_signal(SIGTERM, fn() => 1); \
            pcntl_signal(SIGUSR1, SIG_IGN); {state}")).await;
        assert_ne!(changed, before);
        for _ in 0..3 {
            assert_eq!(engine.text(state).await, before);
        }
    }

    fn environment_is_the_configured_one(engine) {
        engine.env.insert("FROM_ENV".into(), "a b=c".into());
        let names = engine.text("echo json_encode([getenv('FROM_ENV'), getenv('PATH'), \
            getenv('CARGO_MANIFEST_DIR'), getenv('HOME') !== false]);").await;
        assert_eq!(names, r#"["a b=c",false,false,true]"#);
    }

    fn persistent_memory_of_a_large_request_is_freed(engine) {
        let engine = engine.workers(1).ini("memory_limit", "256M");
        engine.text("$x = str_repeat('x', 100 << 20); echo strlen($x);").await;
        let used: u64 = engine.text("echo memory_get_usage(true);").await.parse().unwrap();
        assert!(used <= 4 << 20, "{used}");
    }
}
