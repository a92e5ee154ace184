//! Scripts in Lua, by which Redis does several things with a stream in one step.
//!
//! KEYS[1] is the stream, ARGV[1] the group of its consumers, ARGV[2] this process's consumer.

use redis::Script;

/// Redis 6 would refuse to write after it has read what a replica might read otherwise.
const BEGIN: &str = r#"
if redis.replicate_commands then
    redis.replicate_commands()
end
"#;

/// Moves due messages from the sorted set KEYS[2] to the stream, as Messenger's `Connection` does,
/// claims what others have left and reads new messages, up to ARGV[4] in all. Those with more than
/// ARGV[8] bytes move to the stream KEYS[3], with the reason ARGV[9] in front. Returns each other
/// with its fields and how often it was delivered; the last message that was read; when the next
/// delayed one is due; how many are too long. More arguments: 3 now in milliseconds, 5 the lease in
/// milliseconds, 6 how many entries the stream keeps, 7 how messages are serialized.
const RECEIVE: &str = r#"
local function add(message)
    if ARGV[7] == 'php' then
        message = 's:' .. #message .. ':"' .. message .. '";'
    end
    if ARGV[6] == '0' then
        redis.call('xadd', KEYS[1], '*', 'message', message)
    else
        redis.call('xadd', KEYS[1], 'MAXLEN', '~', ARGV[6], '*', 'message', message)
    end
end

for _, delayed in ipairs(redis.call('zrangebyscore', KEYS[2], '-inf', ARGV[3], 'limit', 0, 100)) do
    local bare = string.match(delayed, '^(.*),"uniqid":"[^"]*"}$')
    add(bare and bare .. '}' or delayed)
    redis.call('zrem', KEYS[2], delayed)
end
local most = tonumber(ARGV[4])
local left = redis.pcall('xpending', KEYS[1], ARGV[1], 'IDLE', ARGV[5], '-', '+', most)
if left.err then
    redis.call('xgroup', 'CREATE', KEYS[1], ARGV[1], '0', 'MKSTREAM')
    left = {}
end
local found = {}
local too_long = 0

local function take(id, fields, deliveries)
    local length = 0
    for _, text in ipairs(fields) do
        length = length + #text
    end
    if length <= tonumber(ARGV[8]) then
        found[#found + 1] = {id, fields, deliveries}
        return
    end
    -- Lua passes at most about 8000 values to a function.
    if #fields > 1000 then
        fields = {'messagepack', cmsgpack.pack(fields)}
    end
    redis.call('xadd', KEYS[3], '*', 'surus-failure', ARGV[9], unpack(fields))
    redis.call('xack', KEYS[1], ARGV[1], id)
    redis.call('xdel', KEYS[1], id)
    too_long = too_long + 1
end

for _, one in ipairs(left) do
    local entry = redis.call('xclaim', KEYS[1], ARGV[1], ARGV[2], ARGV[5], one[1])[1]
    if entry then
        take(one[1], entry[2], one[4] + 1)
    else
        -- It was deleted from the stream.
        redis.call('xack', KEYS[1], ARGV[1], one[1])
    end
end
if #found < most then
    local read = redis.call('xreadgroup', 'GROUP', ARGV[1], ARGV[2], 'COUNT', most - #found,
        'STREAMS', KEYS[1], '>')
    for _, entry in ipairs(read and read[1][2] or {}) do
        take(entry[1], entry[2], 1)
    end
end
local last = '$'
for _, group in ipairs(redis.call('xinfo', 'GROUPS', KEYS[1])) do
    local info = {}
    for at = 1, #group, 2 do
        info[group[at]] = group[at + 1]
    end
    if info['name'] == ARGV[1] then
        last = info['last-delivered-id']
    end
end
local due = redis.call('zrange', KEYS[2], 0, 0, 'withscores')[2] or false
return {found, last, due, too_long}
"#;

/// Requeues a message, if it is still this consumer's. More arguments: 3 its id, 4 for how many
/// milliseconds it counts as idle: after a whole lease others claim it, 5 its deliveries.
const REQUEUE: &str = r#"
local one = redis.call('xpending', KEYS[1], ARGV[1], ARGV[3], ARGV[3], 1)[1]
if one and one[2] == ARGV[2] then
    redis.call('xclaim', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[3], 'IDLE', ARGV[4],
        'RETRYCOUNT', ARGV[5], 'JUSTID')
end
"#;

/// Ends a message, and deletes it if ARGV[4] is 1. The more argument: 3 its id.
const END: &str = r#"
redis.call('xack', KEYS[1], ARGV[1], ARGV[3])
if ARGV[4] == '1' then
    redis.call('xdel', KEYS[1], ARGV[3])
end
"#;

/// Keeps a message in the hash KEYS[2] instead, if it is still this consumer's. More arguments: 3
/// its id, 4 what is kept.
const BURY: &str = r#"
local one = redis.call('xpending', KEYS[1], ARGV[1], ARGV[3], ARGV[3], 1)[1]
if one and one[2] == ARGV[2] then
    redis.call('hset', KEYS[2], ARGV[3], ARGV[4])
    redis.call('xack', KEYS[1], ARGV[1], ARGV[3])
    redis.call('xdel', KEYS[1], ARGV[3])
end
"#;

/// Puts a buried message back into the stream. More arguments: 3 its id, 4 the message.
const RETRY: &str = r#"
if redis.call('hexists', KEYS[2], ARGV[3]) == 1 then
    redis.call('xadd', KEYS[1], '*', 'message', ARGV[4])
    redis.call('hdel', KEYS[2], ARGV[3])
end
"#;

/// Lets messages of this consumer count as delivered just now. Returns the numbers of those that it
/// has no more. More arguments: the ids.
const EXTEND: &str = r#"
local lost = {}
for number = 3, #ARGV do
    local one = redis.call('xpending', KEYS[1], ARGV[1], ARGV[number], ARGV[number], 1)[1]
    if one and one[2] == ARGV[2] then
        redis.call('xclaim', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[number], 'JUSTID')
    else
        lost[#lost + 1] = number - 3
    end
end
return lost
"#;

/// Counts waiting, delayed and reserved messages, and returns the id of the first waiting one. More
/// arguments: 3 now in milliseconds.
const DEPTH: &str = r#"
local due = redis.call('zcount', KEYS[2], '-inf', ARGV[3])
local delayed = redis.call('zcard', KEYS[2]) - due
local groups = redis.pcall('xinfo', 'GROUPS', KEYS[1])
local last, pending = '-', 0
for _, group in ipairs(groups.err and {} or groups) do
    local info = {}
    for at = 1, #group, 2 do
        info[group[at]] = group[at + 1]
    end
    if info['name'] == ARGV[1] then
        last, pending = '(' .. info['last-delivered-id'], info['pending']
    end
end
local waiting = redis.call('xrange', KEYS[1], last, '+', 'COUNT', 1000)
return {#waiting + due, delayed, pending, waiting[1] and waiting[1][1] or false}
"#;

/// Removes consumers of processes that have ended: they have no messages, and have not asked for
/// any for the time ARGV[3].
const CLEAN: &str = r#"
local consumers = redis.pcall('xinfo', 'CONSUMERS', KEYS[1], ARGV[1])
for _, consumer in ipairs(consumers.err and {} or consumers) do
    local info = {}
    for at = 1, #consumer, 2 do
        info[consumer[at]] = consumer[at + 1]
    end
    if string.sub(info['name'], 1, 6) == 'surus-' and info['pending'] == 0
        and info['idle'] > tonumber(ARGV[3]) then
        redis.call('xgroup', 'DELCONSUMER', KEYS[1], ARGV[1], info['name'])
    end
end
"#;

pub struct StreamScripts {
    pub receive: Script,
    pub requeue: Script,
    pub end: Script,
    pub bury: Script,
    pub retry: Script,
    pub extend: Script,
    pub depth: Script,
    pub clean: Script,
}

impl Default for StreamScripts {
    fn default() -> StreamScripts {
        let script = |text: &str| Script::new(&format!("{BEGIN}{text}"));
        StreamScripts {
            receive: script(RECEIVE),
            requeue: script(REQUEUE),
            end: script(END),
            bury: script(BURY),
            retry: script(RETRY),
            extend: script(EXTEND),
            depth: script(DEPTH),
            clean: script(CLEAN),
        }
    }
}
