/* Describes a PHP value briefly, with a digest of everything in it, so that two can be compared. */
#include "app/value_digest.h"

#include <stdlib.h>
#include <string.h>

#include <zend_smart_str.h>

/* Limits of a value's digest; each object in it is visited once. */
enum { DEPTH = 64, NODES = 200000 };

static uint32_t nodes;

/* By handle: the number of the value in which an object was last visited. */
static uint32_t *met, met_size, value_number;

static uint64_t mix(uint64_t hash, uint64_t value)
{
	return (hash ^ value) * 0x100000001b3u;
}

static uint64_t digest(const zval *value, int depth);

static uint64_t digest_table(HashTable *table, uint64_t hash, int depth)
{
	zend_ulong number;
	zend_string *key;
	zval *value;

	ZEND_HASH_FOREACH_KEY_VAL_IND(table, number, key, value) {
		hash = mix(hash, key ? zend_string_hash_val(key) : number);
		hash = mix(hash, digest(value, depth - 1));
	} ZEND_HASH_FOREACH_END();
	return hash;
}

/* Whether this is the first visit in this value. If the handle cannot be stored, the object is
 * skipped. */
static bool meet(uint32_t handle)
{
	if (handle >= met_size) {
		uint32_t size = EG(objects_store).top > handle ? EG(objects_store).top : handle + 1;
		uint32_t *more = realloc(met, size * sizeof(*met));
		if (!more) {
			return false;
		}
		memset(more + met_size, 0, (size - met_size) * sizeof(*met));
		met = more;
		met_size = size;
	}
	if (met[handle] == value_number) {
		return false;
	}
	met[handle] = value_number;
	return true;
}

/* A digest of the value, to a limited depth. */
static uint64_t digest(const zval *value, int depth)
{
	uint64_t hash = mix(0xcbf29ce484222325u, Z_TYPE_P(value));

	if (depth == 0 || ++nodes > NODES) {
		return hash;
	}
	switch (Z_TYPE_P(value)) {
		case IS_LONG:
			return mix(hash, (uint64_t)Z_LVAL_P(value));
		case IS_DOUBLE: {
			uint64_t bits;
			memcpy(&bits, &Z_DVAL_P(value), sizeof(bits));
			return mix(hash, bits);
		}
		case IS_STRING:
			return mix(hash, zend_string_hash_func(Z_STR_P(value)));
		case IS_ARRAY:
			return digest_table(Z_ARRVAL_P(value),
			        mix(hash, zend_hash_num_elements(Z_ARRVAL_P(value))), depth);
		case IS_REFERENCE:
			return digest(Z_REFVAL_P(value), depth);
		case IS_OBJECT: {
			zend_object *object = Z_OBJ_P(value);
			hash = mix(hash, object->handle);
			if (!meet(object->handle)) {
				return hash;
			}
			for (int i = 0; i < object->ce->default_properties_count; i++) {
				hash = mix(hash, digest(&object->properties_table[i], depth - 1));
			}
			if (object->properties) {
				hash = digest_table(object->properties, hash, depth);
			}
			return hash;
		}
		case IS_RESOURCE:
			return mix(hash, (uint64_t)Z_RES_HANDLE_P(value));
		default:
			return hash;
	}
}

zend_string *surus_value_describe(const zval *value)
{
	smart_str text = {0};

	ZVAL_DEREF(value);
	switch (Z_TYPE_P(value)) {
		case IS_ARRAY:
			smart_str_append_printf(&text, "array of %u",
			        zend_hash_num_elements(Z_ARRVAL_P(value)));
			break;
		case IS_OBJECT:
			smart_str_append_printf(&text, "%s", ZSTR_VAL(Z_OBJCE_P(value)->name));
			break;
		case IS_STRING:
			smart_str_append_printf(&text, "string of %zu", Z_STRLEN_P(value));
			break;
		case IS_LONG:
			smart_str_append_long(&text, Z_LVAL_P(value));
			break;
		case IS_TRUE:
		case IS_FALSE:
			smart_str_appends(&text, Z_TYPE_P(value) == IS_TRUE ? "true" : "false");
			break;
		default:
			smart_str_appends(&text, zend_zval_type_name(value));
	}
	nodes = 0;
	value_number++;
	smart_str_appendc(&text, '\0');
	smart_str_append_printf(&text, "%016lx", (unsigned long)digest(value, DEPTH));
	smart_str_0(&text);
	return text.s;
}
