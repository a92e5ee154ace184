/* Forgets that warm-ups have included files that only return a value or run code. include_once of
 * such a file would return true in the next request, instead of the value. */
#include "app/included_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <php.h>

/* Used slots of the tables, and empty ones among them. Later entries come behind them. */
static struct {
	uint32_t files, classes, functions, holes;
} before;

/* Adds the file of a declaration. False: it is not among the included files by this name, so a
 * comparison of names would be wrong. */
static bool add(HashTable *declaring, zend_string *file)
{
	if (!file || strstr(ZSTR_VAL(file), "eval()'d code")) {
		return true;
	}
	zend_hash_add_empty_element(declaring, file);
	return zend_hash_exists(&EG(included_files), file);
}

/* Finds the files that have declared something since then. False: not all are known. */
static bool find_declaring(HashTable *declaring)
{
	const HashTable *classes = EG(class_table), *functions = EG(function_table);
	bool are_known = true;

	for (uint32_t i = before.classes; i < classes->nNumUsed; i++) {
		const zval *slot = &classes->arData[i].val;
		const zend_class_entry *class = Z_TYPE_P(slot) == IS_UNDEF ? NULL : Z_PTR_P(slot);
		if (class && class->type == ZEND_USER_CLASS) {
			are_known &= add(declaring, class->info.user.filename);
		}
	}
	for (uint32_t i = before.functions; i < functions->nNumUsed; i++) {
		const zval *slot = &functions->arData[i].val;
		const zend_function *function = Z_TYPE_P(slot) == IS_UNDEF ? NULL : Z_PTR_P(slot);
		if (function && function->type == ZEND_USER_FUNCTION) {
			are_known &= add(declaring, function->op_array.filename);
		}
	}
	return are_known;
}

/* Whether the file makes an alias of a class, which cannot be made twice and does not tell its
 * file. Also if the file cannot be read, or is too long. */
static bool may_make_alias(const char *path)
{
	enum { LONGEST = 256 * 1024 };
	FILE *file = fopen(path, "re");
	char *text = file ? malloc(LONGEST) : NULL;
	size_t len = text ? fread(text, 1, LONGEST - 1, file) : LONGEST - 1;
	bool may = len == LONGEST - 1;

	if (!may) {
		text[len] = '\0';
		may = strcasestr(text, "class_alias");
	}
	free(text);
	if (file) {
		fclose(file);
	}
	return may;
}

static uint32_t count_holes(void)
{
	const HashTable *classes = EG(class_table), *functions = EG(function_table);

	return classes->nNumUsed - classes->nNumOfElements + functions->nNumUsed -
	       functions->nNumOfElements;
}

void surus_included_files_save(void)
{
	before.files = EG(included_files).nNumUsed;
	before.classes = EG(class_table)->nNumUsed;
	before.functions = EG(function_table)->nNumUsed;
	before.holes = count_holes();
}

void surus_included_files_forget(void)
{
	HashTable declaring, *files = &EG(included_files);

	/* Where something was deleted, slots may have moved. */
	if (files->nNumUsed <= before.files || count_holes() != before.holes) {
		return;
	}
	zend_hash_init(&declaring, 256, NULL, NULL, 0);
	if (find_declaring(&declaring)) {
		for (uint32_t i = files->nNumUsed; i-- > before.files;) {
			Bucket *file = files->arData + i;
			if (Z_TYPE(file->val) != IS_UNDEF && !zend_hash_exists(&declaring, file->key) &&
			        !may_make_alias(ZSTR_VAL(file->key))) {
				zend_hash_del_bucket(files, file);
			}
		}
	}
	zend_hash_destroy(&declaring);
}
