//! Lua scripts that Redis runs atomically.
//!
//! They leave the same bytes as the scripts of `Illuminate\Queue\LuaScripts`, but write a job to
//! its new place before they delete it from the old one. A server without memory refuses writes and
//! lets jobs be deleted.

use redis::Script;

/// Moves due jobs to the list, reserves up to ARGV[3] jobs, and returns them in pairs, popped and
/// reserved. Without any, it returns when the next one is due. It also returns how many jobs it has
/// put aside because they are too long. The arguments: now, the end of the lease, most, format, the
/// beginning of new ids, the longest job in bytes.
const RECEIVE: &str = r#"
local function migrate(from)
    local due = redis.call('zrangebyscore', from, '-inf', ARGV[1], 'limit', 0, 1000)
    for first = 1, #due, 100 do
        local last = math.min(first + 99, #due)
        redis.call('rpush', KEYS[1], unpack(due, first, last))
        for _ = first, last do
            redis.call('rpush', KEYS[4], 1)
        end
    end
    if #due > 0 then
        redis.call('zremrangebyrank', from, 0, #due - 1)
    end
end

-- A job that is no JSON is reserved as it is: Laravel fails it.
local function count(job)
    local decoded = cjson.decode(job)
    decoded['attempts'] = decoded['attempts'] + 1
    return cjson.encode(decoded)
end

local function reserve(job, number)
    if ARGV[4] == 'laravel' then
        local can_count, counted = pcall(count, job)
        return can_count and counted or job
    end
    local _, stop, attempts, id = string.find(job, '^surus:(%d+):([%x-]+):')
    if not stop then
        return 'surus:1:' .. ARGV[5] .. '-' .. string.format('%x', number) .. ':' .. job
    end
    return 'surus:' .. (attempts + 1) .. ':' .. id .. ':' .. string.sub(job, stop + 1)
end

migrate(KEYS[2])
migrate(KEYS[3])
local jobs = {}
local too_long = 0
for number = 1, tonumber(ARGV[3]) do
    local job = redis.call('lindex', KEYS[1], 0)
    if not job then
        break
    end
    if #job > tonumber(ARGV[6]) then
        redis.call('rpush', KEYS[5], job)
        too_long = too_long + 1
    else
        local reserved = reserve(job, number)
        redis.call('zadd', KEYS[3], ARGV[2], reserved)
        jobs[#jobs + 1] = job
        jobs[#jobs + 1] = reserved
    end
    redis.call('lpop', KEYS[1])
    redis.call('lpop', KEYS[4])
end
local next_due = false
if #jobs == 0 then
    for place = 2, 3 do
        local due = redis.call('zrange', KEYS[place], 0, 0, 'withscores')[2]
        if due and (not next_due or tonumber(due) < tonumber(next_due)) then
            next_due = due
        end
    end
end
return {jobs, next_due, too_long}
"#;

/// Ends a reservation, if it still exists, and puts the job elsewhere. The arguments: the reserved
/// job, what it becomes, the place, and its score there.
pub const PUT_BACK: &str = r#"
if not redis.call('zscore', KEYS[3], ARGV[1]) then
    return
end
if ARGV[3] == 'delayed' then
    redis.call('zadd', KEYS[2], ARGV[4], ARGV[2])
else
    redis.call(ARGV[3] == 'front' and 'lpush' or 'rpush', KEYS[1], ARGV[2])
    redis.call('rpush', KEYS[4], 1)
end
redis.call('zrem', KEYS[3], ARGV[1])
"#;

/// Ends a reservation, if it still exists, and keeps the job among the buried ones. The arguments:
/// the reserved job, its id, and what is kept.
const BURY: &str = r#"
if redis.call('zscore', KEYS[1], ARGV[1]) then
    redis.call('hset', KEYS[2], ARGV[2], ARGV[3])
    redis.call('zrem', KEYS[1], ARGV[1])
end
"#;

/// Puts a buried job back, if it still exists. The arguments: its id, and the job.
const RETRY: &str = r#"
if redis.call('hexists', KEYS[3], ARGV[1]) == 1 then
    redis.call('rpush', KEYS[1], ARGV[2])
    redis.call('rpush', KEYS[2], 1)
    redis.call('hdel', KEYS[3], ARGV[1])
end
"#;

/// Extends reservations. Returns the numbers of those that no longer exist. The arguments: the new
/// end, and the reserved jobs.
const EXTEND: &str = r#"
local lost = {}
for number = 2, #ARGV do
    if redis.call('zscore', KEYS[1], ARGV[number]) then
        redis.call('zadd', KEYS[1], ARGV[1], ARGV[number])
    else
        lost[#lost + 1] = number - 2
    end
end
return lost
"#;

/// Counts waiting, delayed and reserved jobs, and returns the first waiting one, unless it is too
/// long. The arguments: now, and the longest job in bytes.
const DEPTH: &str = r#"
local due = redis.call('zcount', KEYS[2], '-inf', ARGV[1])
local first = redis.call('lindex', KEYS[1], 0)
if first and #first > tonumber(ARGV[2]) then
    first = false
end
return {
    redis.call('llen', KEYS[1]) + due,
    redis.call('zcard', KEYS[2]) - due,
    redis.call('zcard', KEYS[3]),
    first,
}
"#;

pub struct Scripts {
    pub receive: Script,
    pub bury: Script,
    pub retry: Script,
    pub extend: Script,
    pub depth: Script,
}

impl Default for Scripts {
    fn default() -> Scripts {
        Scripts {
            receive: Script::new(RECEIVE),
            bury: Script::new(BURY),
            retry: Script::new(RETRY),
            extend: Script::new(EXTEND),
            depth: Script::new(DEPTH),
        }
    }
}
